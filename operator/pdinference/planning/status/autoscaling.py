"""The condition Autoscaling: whether the replica counts follow the load.

Tests: tests/planning/test_status.py
"""

from pdinference.api import names
from pdinference.planning.condition_changes import ASLEEP, ConditionResult
from pdinference.planning.scaling.condition import autoscaling_result
from pdinference.planning.status.inputs import StatusInputs

_ACTIVITY_UNKNOWN = (
    f"Router pods do not report their requests on port {names.ROUTER_STATE_PORT}, so P and D do not scale to zero. "
    "Check that no NetworkPolicy blocks this port."
)


def autoscaling(inputs: StatusInputs) -> ConditionResult | None:
    """Whether HPAs follow the load, and whether P and D can scale to zero; None without autoscaling."""
    if not inputs.autoscalers:
        return None
    if (result := _without_load(inputs)) is not None:
        return result
    result = autoscaling_result(inputs.autoscalers, inputs.observations.load, limited=inputs.allocation.limited)
    # A router pod that is starting has not reported yet.
    if inputs.desired.sleeps_after is not None and inputs.observations.activity is None and not inputs.routers_change:
        return result._replace(message=f"{result.message} {_ACTIVITY_UNKNOWN}")
    return result


def _without_load(inputs: StatusInputs) -> ConditionResult | None:
    """The result while P and D have no load: asleep, or starting; None otherwise."""
    if inputs.asleep and not inputs.stopped:
        message = "P and D have no pods because no requests arrived. Autoscaling resumes with the next request."
        return ConditionResult("True", ASLEEP, message)
    if inputs.engines_starting:
        return ConditionResult("Unknown", "Starting", "P and D are starting. Autoscaling begins when they are ready.")
    return None
