"""The status of a PDBatch, from its Job, the Job's pods, and the runner's metrics and report.

Tests: tests/batch/test_reconcile.py, tests/planning/test_reported.py
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pdinference.api.v1alpha1 import BatchStatus, Condition
from pdinference.api.v1alpha1.batch import BatchPhase
from pdinference.api.v1alpha1.conditions import INVALID
from pdinference.planning import condition_changes, pod_diagnosis, reported
from pdinference.planning.condition_changes import condition
from pdinference.planning.observed import Failure, JobState, PodSummary
from pdinference.planning.transitions import Transition

RUNNING = "Running"
"""True while requests are being sent. Its message always describes the current state."""
COMPLETE = "Complete"
"""True when every request was answered or has failed for good."""
FAILED = "Failed"
"""True when the batch ended before every request was processed."""

_LONGEST_REPORT = 8192  # the kubelet keeps 4,096 bytes


class Progress(NamedTuple):
    """Counts of requests, as the runner reports them."""

    total: int
    completed: int
    failed: int


class State(NamedTuple):
    """The phase of a batch, and the reason and message of its conditions."""

    phase: BatchPhase
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BatchStatusInputs:
    """Everything from which the status of a PDBatch is computed.

    Attributes:
        unready: Why the PDInference cannot take requests now; empty when it can.
        job: The Job; None while there is none, and after it was removed.
        pods: The live pods of the Job.
        seen: Counts from the runner's metrics; None when they were not read.
        failures: Children that could not be applied in this reconcile.
        invalid: Why the stored spec is not valid, so that the Job is left alone; empty if it is.
    """

    namespace: str
    generation: int
    unready: str
    job: JobState | None
    pods: tuple[PodSummary, ...] = ()
    seen: Progress | None = None
    failures: tuple[Failure, ...] = ()
    invalid: str = ""


def build_batch_status(inputs: BatchStatusInputs, *, previous: BatchStatus, now: datetime) -> BatchStatus:
    """The status to write; equal to `previous` when nothing changed."""
    if previous.finished:  # final: the Job may be deleted, and the pods' reports with it
        return previous.model_copy(update={"observed_generation": inputs.generation})
    counts = _counts(inputs, previous)
    state = _state(inputs)
    job = inputs.job
    return BatchStatus(
        observed_generation=inputs.generation,
        phase=state.phase,
        total=counts.total,
        completed=counts.completed,
        failed=counts.failed,
        progress=f"{counts.completed + counts.failed}/{counts.total}" if counts.total else "",
        start_time=(job.started if job is not None else None) or previous.start_time,
        completion_time=job.ended if job is not None and state.phase in {"Complete", "Failed"} else None,
        conditions=_conditions(state, inputs.generation, previous, now),
    )


def running_pod(pods: Iterable[PodSummary]) -> PodSummary | None:
    """The pod that is running; None without one."""
    return next((pod for pod in pods if pod.phase == "Running" and not pod.terminating), None)


def batch_transitions(old: BatchStatus, new: BatchStatus) -> Iterator[Transition]:
    """The Events between two statuses."""
    if new.phase == old.phase:
        return
    message = next((c.message for c in new.conditions if c.type == RUNNING), "")
    yield Transition("Warning" if new.phase == "Failed" else "Normal", new.phase, message)


def _conditions(state: State, generation: int, previous: BatchStatus, now: datetime) -> list[Condition]:
    fresh = [
        condition(
            type_,
            "True" if state.phase == type_ else "False",
            state.reason,
            state.message,
            generation=generation,
            now=now,
        )
        for type_ in (RUNNING, COMPLETE, FAILED)
    ]
    return condition_changes.carry_over(fresh, previous.conditions)


def _counts(inputs: BatchStatusInputs, previous: BatchStatus) -> Progress:
    """The newest counts. A runner that has not read its input yet has none, so the previous ones are kept."""
    for counts in (inputs.seen, *(_report(pod)[0] for pod in _ended(inputs.pods))):
        if counts is not None and counts.total:
            return counts
    return Progress(previous.total, previous.completed, previous.failed)


def _ended(pods: Iterable[PodSummary]) -> list[PodSummary]:
    """Pods that have ended, the newest first."""
    return sorted((pod for pod in pods if pod.gone), key=lambda pod: pod.created, reverse=True)


def _report(pod: PodSummary) -> tuple[Progress | None, str]:
    """Counts and message of a runner's report; without a report, no counts and the end of its log."""
    report = reported.report(pod.report, _LONGEST_REPORT)
    counts = [number for name in Progress._fields if (number := reported.count(report.get(name))) is not None]
    message = report.get("message")
    if len(counts) < len(Progress._fields) or not isinstance(message, str):
        words = pod.problem.last_words if pod.problem is not None else ""
        return None, words or f"Pod {pod.name} ended without a message."
    return Progress(*counts), reported.plain(message)


def _state(inputs: BatchStatusInputs) -> State:
    job = inputs.job
    if job is not None and job.outcome is not None and all(pod.gone or pod.terminating for pod in inputs.pods):
        return _end(job, inputs.pods)  # only now: the pod's report arrives through another watch
    found = _underway(inputs, job) if job is not None else _before(inputs)
    if inputs.invalid:
        return found._replace(reason=INVALID, message=inputs.invalid)
    if inputs.failures:
        return found._replace(reason=inputs.failures[0].reason, message=" ".join(map(str, inputs.failures)))
    return found


def _end(job: JobState, pods: tuple[PodSummary, ...]) -> State:
    last = next(iter(_ended(pods)), None)
    words = _report(last)[1] if last is not None else ""
    if job.outcome == "Complete":
        return State("Complete", "Complete", words or "Every request was answered or has failed.")
    if job.reason == "DeadlineExceeded":
        return State("Failed", job.reason, "The batch took longer than spec.timeoutSeconds. Existing answers are kept.")
    return State("Failed", job.reason or "Failed", words or job.message or "The Job failed.")


def _before(inputs: BatchStatusInputs) -> State:
    """The state without a Job."""
    if inputs.invalid or inputs.failures or inputs.unready:
        return State("Waiting", "WaitingForService", inputs.unready)
    return State("Pending", "Starting", "The Job is being created.")


def _underway(inputs: BatchStatusInputs, job: JobState) -> State:
    if job.settings.get("suspend"):
        return State("Suspended", "Suspended", "Paused. Set spec.suspend to false to continue.")
    failed = next((pod for pod in _ended(inputs.pods) if pod.phase == "Failed"), None)
    before = f" The previous attempt failed: {_report(failed)[1]}" if failed is not None else ""
    if running_pod(inputs.pods) is not None:
        away = f" They may have to wait: {inputs.unready}" if inputs.unready else ""
        return State("Running", "Running", f"Requests are being sent.{away}{before}")
    unwell = pod_diagnosis.most_severe((pod for pod in inputs.pods if not pod.gone), inputs.namespace)
    if unwell is not None:
        return State("Pending", unwell.reason, unwell.message + before)
    return State("Pending", "Starting", f"Waiting for the Job to start a pod.{before}")
