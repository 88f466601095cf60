"""Runs a measurement in a cluster, and removes its pods.

Tests: tests/integration/test_doctor.py
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pdinference.api.names import Role
from pdinference.api.plain_text import plain
from pdinference.cli.doctor.bandwidth.jobs import Run, claim_template, job
from pdinference.cli.doctor.bandwidth.outcome import Measured, parse
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import JOB, POD, RESOURCE_CLAIM_TEMPLATE

_POLL_S: Final = 1.0
_GONE_AFTER_POLLS: Final = 60
_LONGEST: Final = 1000


class MeasurementError(Exception):
    """The measurement could not be made; the message says why."""


@dataclass(frozen=True)
class BandwidthMeasurement:
    """A result.

    Attributes:
        nodes: Node of each pod, by the roles that it has the place of.
    """

    measured: Measured
    nodes: dict[str, str]


async def measure(api: ApiServer, run: Run, progress: Callable[[str], None]) -> BandwidthMeasurement:
    """Start the pods, wait for the result, and remove them, whatever happens.

    Args:
        api: The API server.
        run: The measurement.
        progress: Called with a line of text at each step.

    Raises:
        MeasurementError: The pods did not start, or failed.
        ApiError: The user may not create the objects.
    """
    async with _removed(api, run, progress), _cancelled_by_signals():
        deadline = time.monotonic() + run.timeout
        owner: Json | None = None
        pods: dict[Role, Json] = {}
        peer = ""
        for role in run.roles:
            created = await api.create(JOB.path(run.namespace), job(run, role, peer=peer, owner=owner))
            owner = owner or created
            if role in run.claims:
                await api.create(RESOURCE_CLAIM_TEMPLATE.path(run.namespace), claim_template(run, role, owner))
            measures = role is Role.DECODE
            progress(
                f"Waiting for the pod in the place of {run.words[role]} (Job {run.name(role)})"
                f"{', which measures' if measures else ''}."
            )
            pods[role] = await _until(api, run, role, _has_ended if measures else _has_address, deadline)
            peer = str(pods[role]["status"].get("podIP") or "")
        nodes = {run.words[role]: _node(pod) for role, pod in pods.items()}
        return BandwidthMeasurement(parse(_message(pods[Role.DECODE])), nodes)


@asynccontextmanager
async def _removed(api: ApiServer, run: Run, progress: Callable[[str], None]) -> AsyncIterator[None]:
    """Remove all objects of the run at the end, and wait until its pods are gone."""
    try:
        yield
    finally:
        progress("Removing the pods.")
        await _remove(api, run)


@asynccontextmanager
async def _cancelled_by_signals() -> AsyncIterator[None]:
    """Cancel the task when the process should end. Ctrl-C does so by itself (asyncio.run)."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, task.cancel if task else loop.stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _remove(api: ApiServer, run: Run) -> None:
    for role in (Role.DECODE, Role.PARAMETER):
        with suppress(ApiError):  # Kubernetes deletes them later (activeDeadlineSeconds, ttlSecondsAfterFinished)
            path = JOB.path(run.namespace, run.name(role))
            await api.delete(path, uid=(await api.get(path))["metadata"]["uid"])
    with suppress(ApiError):
        for _ in range(_GONE_AFTER_POLLS):
            if not await _pods(api, run):
                return
            await asyncio.sleep(_POLL_S)


async def _until(api: ApiServer, run: Run, role: Role, holds: Callable[[Json], bool], deadline: float) -> Json:
    """The pod of a role, once a condition holds."""
    while True:
        pods = await _pods(api, run)
        for each in pods.values():
            if (failure := _failure(each)) is not None:
                raise MeasurementError(failure)
        pod = pods.get(run.name(role))
        if pod is not None and holds(pod):
            return pod
        if time.monotonic() > deadline:
            raise MeasurementError(f"After {run.timeout} s: {_state(run, role, pod)}")
        await asyncio.sleep(_POLL_S)


async def _pods(api: ApiServer, run: Run) -> dict[str, Json]:
    """The pods of the run, by the name of their Job."""
    items = (await api.get(POD.path(run.namespace), labelSelector=run.selector)).get("items") or ()
    return {pod["metadata"]["labels"].get("batch.kubernetes.io/job-name", ""): pod for pod in items}


def _has_address(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and bool(pod["status"].get("podIP"))


def _has_ended(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Succeeded")


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _message(pod: Json) -> str:
    statuses = pod["status"].get("containerStatuses") or ()
    ended = [status["state"]["terminated"] for status in statuses if "terminated" in status.get("state", {})]
    return next((str(state.get("message") or "") for state in ended), "")


def _failure(pod: Json) -> str | None:
    """What a failed pod says."""
    if pod["status"].get("phase") != "Failed":
        return None
    said = _message(pod) or pod["status"].get("message") or pod["status"].get("reason") or "no message"
    return f"Pod {pod['metadata']['name']} failed: {plain(said.strip()[-_LONGEST:], _LONGEST)}"


def _state(run: Run, role: Role, pod: Json | None) -> str:
    """Why a pod is not as far as it should be."""
    if pod is None:
        return f"Job {run.name(role)} has no pod. `kubectl describe job` has the reason, for example a quota."
    status, name = pod["status"], pod["metadata"]["name"]
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"pod {name} has no node: {plain(condition.get('message') or '', _LONGEST)}"
    for container in status.get("containerStatuses") or ():
        if "waiting" in container.get("state", {}):
            waiting = container["state"]["waiting"]
            reason = f"{waiting.get('reason')} {waiting.get('message') or ''}"
            return f"pod {name} waits: {plain(reason, _LONGEST)}"
    return f"pod {name} is {status.get('phase')} without a result."


def missing_right(error: ApiError) -> str | None:
    """The right that a refused request needs; None for other errors."""
    return plain(error.message, _LONGEST) if error.status == HTTPStatus.FORBIDDEN else None
