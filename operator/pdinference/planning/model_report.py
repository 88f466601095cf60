"""The model in the status, from the Job that downloads or inspects it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pdinference.api.names import Role
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
    "Waiting": "Another pod is downloading {what} into the same cache.",
    "Asking": "Listing the files of {what}.",
    "Downloading": "Downloading {what}{so_far}.",
    "Verifying": "Verifying {what}{so_far}.",
    "Ready": "Finishing with {what}.",
}
CHECKED = "Checked"
"""Reason of a model that pods found complete; it is worth no Event."""
NOT_CHECKED = "NotChecked"
WORKING = frozenset(_PHASES)
"""Reasons of a model whose Job works. They have no deadline, because the network decides how long that takes."""
BEGINS = frozenset({"Asking"})
"""Phases in which a Job that failed before may fail again."""
UNDER_WAY = frozenset({*_PHASES, "Starting", NOT_CHECKED})
"""Reasons of a model that is not ready and needs no intervention."""


@dataclass(frozen=True, slots=True)
class ModelView:
    """The Job for a model, desired and observed.

    Attributes:
        source: Identity of the source.
        what: Name of the model in messages.
        awaited: Whether P and D start only when the Job is done.
        job: The live Job; None while it does not exist.
        placed_as: The role on whose nodes its pods run.
    """

    source: str
    what: str
    awaited: bool
    job: JobState | None
    placed_as: Role = Role.PARAMETER

    @property
    def phase(self) -> str:
        """The phase that the Job reports; empty before its first report."""
        return reported.plain(_report(self.job).get("phase"))

    @property
    def failed(self) -> bool:
        """Whether the Job reported that its last attempt failed."""
        return self.phase == _FAILED

    @property
    def done(self) -> bool:
        """Whether the Job succeeded."""
        return self.job is not None and self.job.complete


def model_status(view: ModelView, previous: ModelStatus | None) -> ModelStatus:
    """The model's status. Facts of the same source are kept while a new Job starts."""
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
    """The progress of the Job, or its problem and what to do."""
    report = _report(view.job)
    if view.done:
        size = f", {_size(_count(report, 'totalBytes'))}" if _count(report, "totalBytes") else ""
        verb = "is complete in the cache" if view.awaited else "was inspected"
        return Diagnosis("Downloaded" if view.awaited else "Inspected", f"{view.what} {verb}{size}.")
    if view.failed:
        said = reported.plain(report.get("message")) or "The Job reported no reason."
        return Diagnosis(reported.reason(report.get("reason"), _FAILED), said)
    phase = view.phase
    found = pod_diagnosis.most_severe(pods, namespace, view.placed_as)
    if phase not in _PHASES or (found is not None and found.reason != "Starting"):
        return found or Diagnosis("Starting", f"The Job for {view.what} is being started.")
    return Diagnosis(phase, _PHASES[phase].format(what=view.what, so_far=_so_far(report)))


def _so_far(report: Mapping[str, Any]) -> str:
    arrived, total = _count(report, "downloadedBytes"), _count(report, "totalBytes")
    return f": {_size(arrived)} of {_size(total)} ({100 * arrived // total} %)" if total else ""


def _size(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 2**20:.0f} MiB"


def _report(job: JobState | None) -> Mapping[str, Any]:
    """The report of the Job's pod; empty if it is not valid."""
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
