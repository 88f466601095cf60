"""The model's own part of the status, from the Job that downloads or inspects it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pdinference.api.v1alpha1.status import KnownModel, ModelStatus
from pdinference.planning import pod_diagnosis, reported
from pdinference.planning.observed import JobState, PodSummary
from pdinference.planning.pod_diagnosis import Diagnosis

_GIB = 2**30
LONGEST_REPORT = 2**17
"""Characters of a report that are read."""
_LONGEST_COMMIT = 128
_FAILED = "Failed"
_PHASES = {
    "Waiting": "Another pod downloads {what} into the same cache.",
    "Asking": "Asking the hub what {what} holds.",
    "Downloading": "Downloading {what}{so_far}.",
    "Verifying": "Verifying {what}{so_far}.",
    "Ready": "Finishing with {what}.",
}
CHECKED = "Checked"
"""Reason of a model that pods found whole; nothing happened that anybody waits for."""
NOT_CHECKED = "NotChecked"
WORKING = frozenset(_PHASES)
"""Reasons of a model whose Job works. How long that takes is the network's affair."""
BEGINS = frozenset({"Asking"})
"""Phases in which a Job that failed before may fail again."""
UNDER_WAY = frozenset({*_PHASES, "Starting", NOT_CHECKED})
"""Reasons of a model that is not ready and needs nobody's help."""


@dataclass(frozen=True, slots=True)
class ModelView:
    """What is wanted of the Job, and what it says.

    Attributes:
        source: Identity of the source.
        what: The model, for people.
        awaited: Whether P and D start only when the Job is done.
        job: The live Job; None while it does not exist.
    """

    source: str
    what: str
    awaited: bool
    job: JobState | None

    @property
    def phase(self) -> str:
        """What the Job does; empty while it has not reported."""
        return reported.plain(_report(self.job).get("phase"))

    @property
    def failed(self) -> bool:
        """Whether the Job reported that its last try failed."""
        return self.phase == _FAILED

    @property
    def done(self) -> bool:
        """Whether the Job succeeded."""
        return self.job is not None and self.job.complete


def model_status(view: ModelView, previous: ModelStatus | None) -> ModelStatus:
    """What the Job says; what was known of the same source stays known while a new Job starts."""
    report = _report(view.job)
    facts = _facts(report, view.source)
    if facts is None and previous is not None and previous.facts is not None and previous.facts.source == view.source:
        facts = previous.facts
    return ModelStatus(
        revision=reported.plain(report.get("commit"), _LONGEST_COMMIT),
        downloaded_bytes=_count(report, "downloadedBytes") if view.awaited else 0,
        total_bytes=_count(report, "totalBytes"),
        facts=facts,
    )


def model_diagnosis(view: ModelView, pods: Iterable[PodSummary], namespace: str) -> Diagnosis:
    """How far it is, or what is wrong and what to do."""
    report = _report(view.job)
    if view.done:
        size = f", {_size(_count(report, 'totalBytes'))}" if _count(report, "totalBytes") else ""
        verb = "is in the cache, whole" if view.awaited else "was inspected"
        return Diagnosis("Downloaded" if view.awaited else "Inspected", f"{view.what} {verb}{size}.")
    if view.failed:
        said = reported.plain(report.get("message")) or "It gave no reason."
        return Diagnosis(reported.reason(report.get("reason"), _FAILED), said)
    phase = view.phase
    found = pod_diagnosis.most_severe(pods, namespace)
    if phase not in _PHASES or (found is not None and found.reason != "Starting"):
        return found or Diagnosis("Starting", f"The Job for {view.what} is being started.")
    return Diagnosis(phase, _PHASES[phase].format(what=view.what, so_far=_so_far(report)))


def _so_far(report: Mapping[str, Any]) -> str:
    arrived, total = _count(report, "downloadedBytes"), _count(report, "totalBytes")
    return f": {_size(arrived)} of {_size(total)} ({100 * arrived // total} %)" if total else ""


def _size(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 2**20:.0f} MiB"


def _report(job: JobState | None) -> Mapping[str, Any]:
    """What the Job's pod wrote; nothing when it makes no sense."""
    return reported.report(job.report, LONGEST_REPORT) if job is not None else {}


def _count(report: Mapping[str, Any], name: str) -> int:
    return reported.count(report.get(name)) or 0


def _facts(report: Mapping[str, Any], source: str) -> KnownModel | None:
    facts = report.get("facts")
    if not isinstance(facts, Mapping) or not facts.get("config"):
        return None
    try:
        return KnownModel.model_validate({**facts, "source": source})
    except ValidationError:
        return None
