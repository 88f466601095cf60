"""Builds conditions and keeps their transition times. `api.v1alpha1.conditions` lists what each one means.

Tests: tests/planning/test_status.py
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Condition
from pdinference.api.v1alpha1.conditions import DECODE_READY, PARAMETER_READY, ROUTER_READY, Truth
from pdinference.planning.reported import plain

LIMITED = "Limited"
"""Condition of a PDScaler. True while the allocated replica count differs from the recommended one."""

ASLEEP = "Asleep"
"""Reason of conditions while P and D have no pods because no requests arrived."""

ROLE_CONDITIONS = {
    Role.PARAMETER: PARAMETER_READY,
    Role.DECODE: DECODE_READY,
    Role.ROUTER: ROUTER_READY,
}

ROLE_WORDS = {Role.PARAMETER: "P", Role.DECODE: "D", Role.ROUTER: "Router"}
"""Names of the roles in messages."""

_MESSAGE_LIMIT = 2000  # some API server messages quote whole objects


class ConditionResult(NamedTuple):
    """The status, reason and message of a condition."""

    status: Truth
    reason: str
    message: str


def build_conditions(
    results: Mapping[str, ConditionResult | None], *, generation: int, now: datetime
) -> list[Condition]:
    """A condition for each type whose result is not None."""
    return [
        condition(type_, *result, generation=generation, now=now)
        for type_, result in results.items()
        if result is not None
    ]


def condition(
    type_: str,
    status: Truth,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> Condition:
    """A condition with the current time; `carry_over` restores its transition time if its status did not change."""
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=plain(message, _MESSAGE_LIMIT),
        last_transition_time=now.replace(microsecond=0),
        observed_generation=generation,
    )


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of a type; None if it is absent."""
    return next((condition for condition in conditions if condition.type == type_), None)


def carry_over(new: Iterable[Condition], old: Iterable[Condition]) -> list[Condition]:
    """The new conditions; those whose status did not change keep their transition time, unless it lies ahead.

    It does if the clock was set back, or another client wrote it.
    """
    before = {condition.type: condition for condition in old}
    return [
        fresh.model_copy(
            update={"last_transition_time": min(fresh.last_transition_time, before[fresh.type].last_transition_time)}
        )
        if fresh.type in before and before[fresh.type].status == fresh.status
        else fresh
        for fresh in new
    ]
