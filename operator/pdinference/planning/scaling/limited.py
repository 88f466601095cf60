"""Limits: why a role's allocated replica count differs from the recommended one.

Tests: tests/planning/scaling/test_allocation.py
"""

from dataclasses import dataclass
from enum import StrEnum

from pdinference.api.names import Role
from pdinference.planning.scaling.scale_spec import ScaleSpec


class LimitReason(StrEnum):
    """The limit of a role, which is also the reason in conditions."""

    ASLEEP = "Asleep"
    STARTING = "Starting"
    GPU_BUDGET = "GpuBudget"
    RATIO = "Ratio"
    TOO_FEW = "TooFewReplicas"
    TOO_MANY = "TooManyReplicas"


JOINT_LIMITS = (LimitReason.RATIO, LimitReason.GPU_BUDGET)
"""Limits of P and D together (`spec.autoscaling`), the more urgent one last."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Why the allocated replica count differs from the recommended one.

    Attributes:
        recommended: The count that the scale target recommends; of a role without autoscaling, `replicas`.
        allocated: The count that the role gets.
        message: One or two sentences for a condition.
    """

    reason: LimitReason
    recommended: int
    allocated: int
    message: str


@dataclass(frozen=True, slots=True)
class RoleOutcome:
    """The count of a role through the steps of an allocation.

    Attributes:
        recommended: The requested count.
        wanted: The same, moved into range and ratio.
        allocated: The count that the role gets.
        applies: Whether the recommended count applies, because a revision serves.
        revisions: How many revisions have the count.
    """

    recommended: int
    wanted: int
    allocated: int
    applies: bool
    revisions: int


def limit_of(spec: ScaleSpec, role: Role, outcome: RoleOutcome, *, used: int) -> Limit | None:
    """Why a role's count differs from the recommended one; None if it does not.

    Args:
        spec: The scaling fields of the spec.
        role: The role.
        outcome: Its counts.
        used: GPUs in use.
    """
    if outcome.allocated == outcome.recommended:
        return None
    reason = _reason(spec, role, outcome)
    why = _message(reason, spec, role, outcome, used)
    message = f"{outcome.recommended} pods recommended, {outcome.allocated} allocated: {why}"
    return Limit(reason, outcome.recommended, outcome.allocated, message)


def asleep_limit(recommended: int) -> Limit:
    """The limit of a role that is scaled to zero."""
    return Limit(LimitReason.ASLEEP, recommended, 0, "The role has no pods until the next request.")


def _reason(spec: ScaleSpec, role: Role, outcome: RoleOutcome) -> LimitReason:
    scale, allocated = spec.roles[role], outcome.allocated
    if allocated < min(outcome.wanted, outcome.recommended):
        return LimitReason.GPU_BUDGET
    if not outcome.applies:
        return LimitReason.STARTING
    if allocated < outcome.recommended:
        return LimitReason.TOO_MANY if allocated == scale.maximum else LimitReason.RATIO
    return LimitReason.TOO_FEW if allocated == scale.minimum else LimitReason.RATIO


def _message(reason: LimitReason, spec: ScaleSpec, role: Role, outcome: RoleOutcome, used: int) -> str:
    match reason:
        case LimitReason.GPU_BUDGET:
            both = (
                " During the roll-out, each additional pod needs GPUs in both revisions."
                if outcome.revisions > 1
                else ""
            )
            return f"{used} of the {spec.budget} GPUs of spec.autoscaling.gpuBudget are in use.{both}"
        case LimitReason.STARTING:
            return "the recommended count applies when the new revision serves requests."
        case LimitReason.TOO_MANY:
            return f"spec.{role}.autoscaling.maxReplicas is {spec.roles[role].maximum}."
        case LimitReason.TOO_FEW:
            return f"spec.{role}.autoscaling.minReplicas is {spec.roles[role].minimum}."
        case _ if outcome.allocated < outcome.recommended:
            return (
                "with spec.autoscaling.ratio, more pods would require more pods of the other role than its maxReplicas."
            )
    return "spec.autoscaling.ratio requires them for the pods of the other role."
