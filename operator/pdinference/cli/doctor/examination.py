"""Examines a cluster, or one resource in it.

Tests: tests/integration/test_doctor.py, tests/cli/test_doctor.py, tests/cli/doctor/test_stopped.py
"""

import secrets

import click

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.cli.chosen import chosen
from pdinference.cli.doctor.bandwidth.jobs import Run
from pdinference.cli.doctor.bandwidth.measure import BandwidthMeasurement, MeasurementError, measure, missing_right
from pdinference.cli.doctor.bandwidth.outcome import NoResultError
from pdinference.cli.doctor.diagnosis import diagnose, report
from pdinference.cli.doctor.facts import Subject
from pdinference.cli.doctor.finding import Finding, problem, unknown
from pdinference.cli.doctor.reading import read_facts
from pdinference.cli.doctor.report import Report
from pdinference.cli.doctor.stopped import read_stopped
from pdinference.cli.doctor.subject import subject_of
from pdinference.cli.doctor.way import TransferWay, shape_of, way_of
from pdinference.cli.documents import problems_reported
from pdinference.cli.installed import installed, operators
from pdinference.cli.listing import ObjectListing
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.engine.connectors.registry import connector_of, measurable
from pdinference.engine.host_local import devices_of_first
from pdinference.manifests import RenderSettings


async def examined(
    api: ApiServer, namespace: str, which: str | Json | None, settings: RenderSettings, seconds: int | None
) -> Report:
    """Check a resource, or the cluster in general.

    Args:
        api: The API server.
        namespace: Namespace of a stored resource, and of a manifest without one.
        which: Name of a stored resource, or a manifest; None for the cluster in general.
        settings: Settings of the command's options.
        seconds: Longest duration of the measurement; None for no measurement.

    Raises:
        ApiError: The API server does not answer, or has no such resource.
        ClickException: The resource is not valid, or cannot be measured.
    """
    deployments = await operators(api)
    subject = None if which is None else await _subject(api, namespace, which, settings, deployments)
    run = None if subject is None or seconds is None else _run(subject, seconds)
    facts = await read_facts(api, namespace if subject is None else subject.namespace, deployments)
    findings = diagnose(facts, subject)
    if isinstance(which, str):
        findings += await read_stopped(api, namespace, which)
    if run is None:
        return report(subject, findings)
    measurement, failed = await _measured(api, run)
    return report(subject, [*findings, *failed], measurement)


async def _subject(
    api: ApiServer, namespace: str, which: str | Json, settings: RenderSettings, deployments: ObjectListing
) -> Subject:
    stored = isinstance(which, str)
    document = await chosen(api, namespace, which) if isinstance(which, str) else which
    found = await installed(api, namespace, settings, deployments)
    with problems_reported(document, "the API server" if stored else "the file"):
        return subject_of(document, found.settings, stored=stored)


def _run(subject: Subject, seconds: int) -> Run:
    spec = subject.resource.spec
    if way_of(spec) in {TransferWay.NONE, TransferWay.OTHER}:
        raise click.ClickException(
            f"--bandwidth measures transfers by {measurable()}. This resource moves no KV cache with it."
        )
    gpu = all(spec.of(role).accelerator.type == "GPU" for role in ENGINE_ROLES)
    return Run(
        id=secrets.token_hex(4),
        namespace=subject.namespace,
        templates=subject.templates,
        claims=subject.claims,
        words=subject.names_of_roles,
        shape=shape_of(subject.plan, gpu=gpu),
        gpu=gpu,
        port=connector_of(spec).ports(Role.PARAMETER)[0].number,
        timeout=seconds,
        variables=devices_of_first(spec),
    )


async def _measured(api: ApiServer, run: Run) -> tuple[BandwidthMeasurement | None, list[Finding]]:
    """The measurement; without one, the finding that says why."""
    try:
        return await measure(api, run, lambda line: click.echo(line, err=True)), []
    except (MeasurementError, NoResultError) as error:
        return None, [problem("bandwidth", str(error), "See docs/doctor.md#if-the-measurement-fails.")]
    except ApiError as error:
        if (right := missing_right(error)) is None:
            raise
        return None, [unknown("bandwidth", right, "Ask for the rights in docs/doctor.md#rights.")]
