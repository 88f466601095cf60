"""The condition Autoscaling: whether the number of pods follows the load."""

from pdinference.api import names
from pdinference.planning.conditions import ASLEEP, ConditionResult
from pdinference.planning.scaling.condition import autoscaling_result
from pdinference.planning.status.inputs import StatusInputs

_ACTIVITY_UNKNOWN = (
    f"Router pods do not tell on port {names.ACTIVATOR_STATE_PORT} whether anybody asks, so P and D do not sleep; "
    "a NetworkPolicy of your own may be in the way."
)


def autoscaling(inputs: StatusInputs) -> ConditionResult | None:
    """What HPAs do, and whether the pair can sleep; None without autoscaling."""
    if not inputs.autoscalers:
        return None
    if (result := _without_load(inputs)) is not None:
        return result
    result = autoscaling_result(inputs.autoscalers, inputs.measured, limited=inputs.allocation.limited)
    # A router pod that starts tells in a moment.
    if inputs.queues_requests and not inputs.activity_known and not inputs.routers_change:
        return result._replace(message=f"{result.message} {_ACTIVITY_UNKNOWN}")
    return result


def _without_load(inputs: StatusInputs) -> ConditionResult | None:
    """That there is none to follow, as the pair sleeps, starts, or is about to go; None when there is."""
    if inputs.asleep and not inputs.stopped:
        message = "P and D have no pods because nobody asked; their load counts again when a request has started them."
        return ConditionResult("True", ASLEEP, message)
    if inputs.engines_starting:
        return ConditionResult("Unknown", "Starting", "P and D start; their load counts as soon as they answer.")
    return None
