"""The progress deadline of a roll-out (`spec.rollout.progressDeadlineSeconds`).

The time of the last progress is in the status, so a restart of the operator does not restart the deadline.

Tests: tests/planning/test_progress.py
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import RoleStatus, Status
from pdinference.api.v1alpha1.conditions import (
    DEADLINE_REASONS,
    FINAL_REASONS,
    MODEL_READY,
    PROGRESSING,
)
from pdinference.planning.condition_changes import ROLE_CONDITIONS, ConditionResult, find
from pdinference.planning.model_report import WORKING
from pdinference.planning.observed import PREPARING_MODEL
from pdinference.planning.pod_diagnosis import Diagnosis
from pdinference.planning.scaling.limited import LimitReason
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.status.problems import MODEL_NOT_READY
from pdinference.planning.status.progressing import rolled_out, unfinished

_PASSED = FINAL_REASONS | DEADLINE_REASONS | {MODEL_NOT_READY, PREPARING_MODEL}
"""Reasons of a role's condition that count as progress when they end, although no pod is ready yet."""

Problems = Mapping[Role, Diagnosis | None]


def last_progress(
    inputs: StatusInputs,
    *,
    previous: Status,
    roles: Mapping[Role, RoleStatus],
    problems: Problems,
    first: Diagnosis | None,
    model: ConditionResult | None,
    now: datetime,
) -> datetime | None:
    """When the roll-out last made progress, in whole seconds; None while no deadline applies.

    Args:
        inputs: The observed state.
        previous: The status as last written.
        roles: The counts now.
        problems: The problem of each role.
        first: The problem to solve first.
        model: The condition ModelReady.
        now: The time.
    """
    if not _applies(inputs, problems, first, model):
        return None
    before = previous.last_progress_time
    if before is None or before > now or _moved(inputs, previous, roles, problems, model):
        return now.replace(microsecond=0)
    return before


def late(since: datetime | None, deadline: timedelta, now: datetime) -> bool:
    """Whether the deadline has passed."""
    return since is not None and now >= since + deadline


def due(status: Status, deadline: timedelta) -> datetime | None:
    """When an unchanged status becomes `ProgressDeadlineExceeded`, so a reconcile is due; None for never."""
    result = find(status.conditions, PROGRESSING)
    if status.last_progress_time is None or result is None or result.status != "True":
        return None
    return status.last_progress_time + deadline


def _applies(inputs: StatusInputs, problems: Problems, first: Diagnosis | None, model: ConditionResult | None) -> bool:
    """Whether the roll-out is unfinished, and waits neither for GPUs of the budget nor for a Job that works."""
    if not unfinished(inputs, first):
        return False
    if first is not None and first.reason == LimitReason.GPU_BUDGET:
        return False
    if first is not None and first.reason == MODEL_NOT_READY and model is not None and model.reason in WORKING:
        return False
    return not (rolled_out(inputs) and inputs.answers and _only_autoscaled(inputs, problems))


def _only_autoscaled(inputs: StatusInputs, problems: Problems) -> bool:
    """Whether only pods of autoscaled roles are missing. A revision that serves without them is not stuck."""
    lacking = {role for role, problem in problems.items() if problem is not None}
    return bool(lacking) and lacking <= inputs.autoscalers.keys()


def _moved(
    inputs: StatusInputs,
    previous: Status,
    roles: Mapping[Role, RoleStatus],
    problems: Problems,
    model: ConditionResult | None,
) -> bool:
    """Whether there was progress since the last status: another revision, one more ready pod, or a phase that ended."""
    if (previous.revision, previous.observed_generation) != (inputs.desired.revision, inputs.generation):
        return True
    if previous.serving_revision != inputs.rollout.serving:
        return True
    if any(counts.ready > getattr(previous.roles, role).ready for role, counts in roles.items()):
        return True
    looked = find(previous.conditions, MODEL_READY)
    if model is not None and looked is not None and model.status == "True" != looked.status:
        return True
    return any(_passed(previous, role, problem) for role, problem in problems.items())


def _passed(previous: Status, role: Role, problem: Diagnosis | None) -> bool:
    before = find(previous.conditions, ROLE_CONDITIONS[role])
    now = problem.reason if problem is not None else ""
    return before is not None and before.reason in _PASSED and before.reason != now
