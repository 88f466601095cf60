"""Measures steps on this machine, or prints the Job that measures them on a node of D.

Tests: tests/advise/commands/calibrate/test_calibrate.py
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import click
import yaml

from pdinference.api.v1alpha1 import PDInference
from pdinference.cli.doctor.subject import subject_of
from pdinference.cli.documents import one_document, problems_reported
from pdinference.cli.plain_yaml import PlainDumper
from pdinference.engine.command import script
from pdinference.manifests import RenderSettings
from pdinference_advise.commands.calibrate.job import job_name, manifests
from pdinference_advise.commands.calibrate.model import ROLE, Json, aggregated, settings_of, with_config
from pdinference_advise.commands.calibrate.step_measurement import SCRIPT, measuring_options

_ARGUMENT_BYTES: Final = 128 * 1024
"""Longest argument of a program (MAX_ARG_STRLEN of Linux)."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """What is measured.

    Attributes:
        document: The resource as JSON, in the mode Aggregated.
        resource: The same.
        options: Options of the measuring program.
    """

    document: Json
    resource: PDInference
    options: list[str]


def measuring(source: IO[str], model_dir: Path | None, model_config: Path | None, *, quick: bool) -> Measuring:
    """What to measure for the resource in a file.

    Raises:
        ClickException: The resource is not valid, or its config.json is missing, not usable or too long.
    """
    document = aggregated(one_document(source))
    with problems_reported(document, source.name):
        resource, config = with_config(document, model_dir, model_config)
    own = settings_of(resource, config)
    options = measuring_options(
        resource, config, step_tokens=own.max_num_batched_tokens, requests=own.max_num_seqs, quick=quick
    )
    if max(map(len, options)) > _ARGUMENT_BYTES:
        raise click.ClickException(f"The model's config.json is longer than {_ARGUMENT_BYTES} bytes.")
    return Measuring(document, resource, options)


def measure_here(found: Measuring, python: str, output: Path | None) -> int:
    """Measure on this machine. Returns the exit status of the measuring program.

    Raises:
        ClickException: Python cannot be run.
    """
    command = [python, "-c", script(*SCRIPT), *([f"--output={output}"] if output else []), *found.options]
    try:
        return subprocess.run(command, check=False).returncode  # noqa: S603 - vLLM of this machine, as asked for
    except OSError as error:
        raise click.ClickException(f"--python: {python} cannot be run: {error.strerror}.") from None


def print_job(found: Measuring, settings: RenderSettings) -> None:
    """Print the Job, after the commands that run it and fit its result."""
    subject = subject_of(found.document, settings, stored=False)
    name, namespace = found.resource.metadata.name, found.resource.metadata.namespace
    objects = manifests(name, namespace, subject.templates[ROLE], subject.claims.get(ROLE), found.options)
    job = f"-n {namespace} job/{job_name(name)}"
    click.echo(
        "# kubectl apply -f FILE    # this file\n"
        f"# kubectl wait {job} --for=condition=Complete --timeout=30m\n"
        f"# kubectl logs {job} > raw.log\n"
        "# pdinference calibrate fit raw.log -o calibration.yaml"
    )
    yaml.dump_all(objects, sys.stdout, Dumper=PlainDumper, sort_keys=False, explicit_start=True, width=120)
