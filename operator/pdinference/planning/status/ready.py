"""The condition Ready: whether requests are answered."""

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.planning.condition_changes import ASLEEP, ConditionResult
from pdinference.planning.pod_diagnosis import Diagnosis
from pdinference.planning.status.inputs import StatusInputs


def ready(inputs: StatusInputs, problem: Diagnosis | None) -> ConditionResult:
    """Whether requests are answered; the problem to solve first if not."""
    router = inputs.workloads.get(Role.ROUTER)
    if inputs.asleep and not inputs.stopped and router is not None and router.ready > 0:
        return _asleep(inputs)
    return answered(inputs) or ConditionResult(
        "False", *(problem or Diagnosis("Starting", "No router pod is ready yet."))
    )


def answered(inputs: StatusInputs) -> ConditionResult | None:
    """The result when requests are answered; None when they are not."""
    if not inputs.answers:
        return None
    count = inputs.workloads[Role.ROUTER].ready
    message = f"Requests are answered; {count} router pod{'' if count == 1 else 's'} ready."
    if inputs.without_parameter:
        message += " D computes the prompts, because no P pod is ready."
    return ConditionResult("True", "Serving", message)


def _asleep(inputs: StatusInputs) -> ConditionResult:
    if inputs.activity_known:
        message = "P and D have no pods because no requests arrived. The next request starts them and waits for them."
        return ConditionResult("True", ASLEEP, message)
    message = (
        "P and D have no pods, and some router pods do not report whether requests wait there. Such requests do not "
        f"start P and D. Check that no NetworkPolicy blocks port {names.ROUTER_STATE_PORT}."
    )
    return ConditionResult("Unknown", ASLEEP, message)
