"""The condition Autoscaling: whether the number of pods follows the load."""

from pdinference.api import names
from pdinference.planning.conditions import ASLEEP, ConditionResult
from pdinference.planning.scaling.condition import autoscaling_result
from pdinference.planning.status.situation import Situation

_NOT_HEARD = (
    f"Router pods do not tell on port {names.ACTIVATOR_STATE_PORT} whether anybody asks, so P and D do not sleep; "
    "a NetworkPolicy of your own may be in the way."
)


def autoscaling(situation: Situation) -> ConditionResult | None:
    """What HPAs do, and whether the pair can sleep; None without autoscaling."""
    if not situation.autoscalers:
        return None
    if (result := _without_load(situation)) is not None:
        return result
    result = autoscaling_result(situation.autoscalers, situation.measured, limited=situation.allocation.limited)
    # A router pod that starts tells in a moment.
    if situation.holds and not situation.heard and not situation.routers_change:
        return result._replace(message=f"{result.message} {_NOT_HEARD}")
    return result


def _without_load(situation: Situation) -> ConditionResult | None:
    """That there is none to follow, as the pair sleeps, starts, or is about to go; None when there is."""
    if situation.asleep and not situation.stopped:
        message = "P and D have no pods because nobody asked; their load counts again when a request has started them."
        return ConditionResult("True", ASLEEP, message)
    if situation.pair_starts:
        return ConditionResult("Unknown", "Starting", "P and D start; their load counts as soon as they answer.")
    return None
