"""State of a Job.

Tests: tests/cluster/test_jobs.py, tests/batch/test_reconcile.py, tests/inference/test_model_job.py
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pdinference.api import names
from pdinference.planning.model_report import LONGEST_REPORT
from pdinference.planning.observed import JobState

Json = Mapping[str, Any]

MUTABLE = ("suspend", "ttlSecondsAfterFinished", "activeDeadlineSeconds")
"""Mutable fields of a Job's spec that a PDBatch sets."""


def job_state(body: Json) -> JobState:
    """State of a Job."""
    spec, status = body["spec"], body.get("status") or {}
    ended: Json = next(
        (c for c in status.get("conditions") or () if _is_true(c) and c["type"] in {"Complete", "Failed"}), {}
    )
    return JobState(
        name=body["metadata"]["name"],
        uid=body["metadata"]["uid"],
        outcome=ended.get("type"),
        reason=ended.get("reason", ""),
        message=ended.get("message", ""),
        active=status.get("active", 0),
        started=_time(status.get("startTime")),
        ended=_time(ended.get("lastTransitionTime")),
        settings={member: spec.get(member) for member in MUTABLE},
        report=_report(body["metadata"].get("annotations") or {}),
    )


def _report(annotations: Json) -> str:
    """The annotation written by the Job's pod; empty if it exceeds the limit."""
    report = annotations.get(names.ANNOTATION_MODEL, "")
    return report if len(report) <= LONGEST_REPORT else ""


def _is_true(condition: Json) -> bool:
    return bool(condition["status"] == "True")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
