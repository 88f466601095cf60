"""The status of a resource whose stored spec is invalid or withheld, and that has no valid spec in its history.

Tests: tests/planning/test_invalid_spec.py
"""

from datetime import datetime

from pdinference.api.names import SERVING_ROLES
from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.conditions import AUTOSCALING, INVALID, MEMORY_FITS, PAUSED, READY
from pdinference.memory import MemoryVerdict
from pdinference.planning import condition_changes
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.status.model import memory_fits
from pdinference.planning.status.progressing import kstatus

_NOTHING = {
    INVALID: "The spec is invalid. Nothing was created.",
    PAUSED: "The resource was paused before its first roll-out. Nothing was created.",
}
_UNKNOWN = "The operator knows no valid spec of this resource. It leaves its children as they are."


def left_alone_status(
    message: str,
    memory: MemoryVerdict,
    *,
    generation: int,
    previous: Status,
    now: datetime,
    reason: str = INVALID,
) -> Status:
    """The status with the error of the spec; conditions of existing children are Unknown.

    Args:
        message: The error of the spec, or that it is withheld.
        memory: Whether the model fits; that may be the error.
        generation: Of the stored spec.
        previous: The status so far.
        now: The time.
        reason: `InvalidSpec` or `Paused`.
    """
    created = bool(previous.revision)
    types = [READY]
    if created:
        types += [condition_changes.ROLE_CONDITIONS[role] for role in SERVING_ROLES]
    if any(old.type == AUTOSCALING for old in previous.conditions):
        types.append(AUTOSCALING)
    unknown = ConditionResult("Unknown", reason, _UNKNOWN)
    nothing = ConditionResult("False", reason, _NOTHING[reason])
    results = dict.fromkeys(types, unknown if created else nothing) | {
        **kstatus(ConditionResult("True" if reason == PAUSED else "False", reason, message)),
        MEMORY_FITS: memory_fits(memory),
    }
    fresh = condition_changes.build_conditions(results, generation=generation, now=now)
    kept = [old for old in previous.conditions if old.type not in results]
    return previous.model_copy(
        update={
            "observed_generation": generation,
            "plan": memory.status,
            "last_progress_time": None,
            "conditions": condition_changes.carry_over([*fresh, *kept], previous.conditions),
        }
    )
