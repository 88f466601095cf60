"""The condition ObjectivesMet and `status.objectives`: how far streamed answers keep the objectives.

At rest nothing changes: the numbers of the last minutes with requests remain, with their time. Only a missed objective
becomes unknown.

Tests: tests/planning/test_objectives.py
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.conditions import OBJECTIVES_MET
from pdinference.api.v1alpha1.status import ObjectivesStatus
from pdinference.planning.condition_changes import ConditionResult, find
from pdinference.planning.objectives import Attainment, Kind, StatedObjectives, attainments
from pdinference.planning.router_window import WINDOW_S
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.status.objectives_messages import MET, MISSED, NO_REQUESTS, NO_REQUESTS_YET, condition
from pdinference.planning.status.objectives_numbers import has_moved, objectives_numbers
from pdinference.planning.transfer_measurements import rates
from pdinference.planning.utilization import Limit, limit

LONG: Final = timedelta(minutes=10)
"""Time after which the message says what limits."""
_SEVERITY: Final = (NO_REQUESTS_YET, NO_REQUESTS, MET, MISSED)
"""The reasons. A later one takes precedence."""
_PAUSE: Final = timedelta(seconds=WINDOW_S)
"""Time between two writes, except for a more severe reason or other objectives."""


def objectives(
    inputs: StatusInputs, previous: Status, now: datetime
) -> tuple[ConditionResult | None, ObjectivesStatus | None]:
    """The condition and the numbers; as last written while no router pod reports."""
    stated, counts = inputs.desired.objectives, inputs.observations.streams
    if stated is None:
        return None, None
    last = find(previous.conditions, OBJECTIVES_MET)
    known = previous.objectives if last is not None and last.reason in _SEVERITY else None
    if known is not None and known.stated != stated.stated:
        last = known = None
    if counts is None or counts.seconds <= 0:
        if known is None or last is None:
            return (None, None) if counts is None else _unknown(inputs, stated, now)
        return ConditionResult(last.status, last.reason, last.message), known
    before = last.reason if last is not None and known is not None else NO_REQUESTS_YET
    found = attainments(stated, counts)
    reason = _judge(found, stated, before)
    limited = _limit(inputs, stated, found) if reason == MISSED and _is_long(previous, known, now) else ""
    numbers = objectives_numbers(found, inputs, known, now, limited)
    if known is not None and _is_kept(reason, before, numbers, known, now):
        reason, numbers = before, known
    return condition(reason, numbers, stated, inputs), numbers


def due_limit(status: Status) -> datetime | None:
    """When the message will say what limits; None while no objective is missed, or if it says so."""
    last = find(status.conditions, OBJECTIVES_MET)
    if last is None or last.status != "False" or (status.objectives is not None and status.objectives.limit):
        return None
    return last.last_transition_time + LONG


def _unknown(inputs: StatusInputs, stated: StatedObjectives, now: datetime) -> tuple[ConditionResult, ObjectivesStatus]:
    numbers = objectives_numbers({}, inputs, None, now, "")
    return condition(NO_REQUESTS_YET, numbers, stated, inputs), numbers


def _judge(found: Mapping[Kind, Attainment], stated: StatedObjectives, before: str) -> str:
    """The reason of the condition."""
    if not found:
        return NO_REQUESTS if before == MISSED else before
    was_missed = {MISSED: True, MET: False}.get(before)
    results = [one.is_missed(stated.percentile, before=was_missed) for one in found.values()]
    if any(results):
        return MISSED
    return before if None in results else MET


def _is_long(previous: Status, known: ObjectivesStatus | None, now: datetime) -> bool:
    """Whether the objectives have been missed for long."""
    last = find(previous.conditions, OBJECTIVES_MET)
    return known is not None and last is not None and last.status == "False" and now - last.last_transition_time >= LONG


def _limit(inputs: StatusInputs, stated: StatedObjectives, found: Mapping[Kind, Attainment]) -> Limit:
    seen, path = inputs.observations, inputs.desired.transfer_path
    if seen.streams is None:
        return ""
    measured = rates(seen.transfer, path, ways=1) if seen.transfer is not None and path is not None else None
    moved = measured.of_first_token if measured is not None else None
    return limit(stated, found, seen.streams, seen.utilization, transfer_share=moved)


def _is_kept(reason: str, before: str, fresh: ObjectivesStatus, known: ObjectivesStatus, now: datetime) -> bool:
    """Whether the written status stays, so that a load that varies a little causes no write."""
    if _SEVERITY.index(reason) > _SEVERITY.index(before) or (fresh.limit and not known.limit):
        return False
    if known.observed_time is not None and timedelta() <= now - known.observed_time < _PAUSE:
        return True
    return reason == before and not has_moved(fresh, known)
