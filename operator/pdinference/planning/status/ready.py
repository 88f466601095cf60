"""The condition Ready: whether requests are answered."""

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.planning.conditions import ASLEEP, ConditionResult
from pdinference.planning.pod_diagnosis import Diagnosis
from pdinference.planning.status.inputs import StatusInputs


def ready(inputs: StatusInputs, problem: Diagnosis | None) -> ConditionResult:
    """Whether requests are answered, and if not, because of which problem."""
    router = inputs.workloads.get(Role.ROUTER)
    if inputs.asleep and not inputs.stopped and router is not None and router.ready > 0:
        return _asleep(inputs)
    return answered(inputs) or ConditionResult(
        "False", *(problem or Diagnosis("Starting", "No router pod is ready yet."))
    )


def answered(inputs: StatusInputs) -> ConditionResult | None:
    """That requests are answered; None when they are not."""
    if not inputs.answers:
        return None
    count = inputs.workloads[Role.ROUTER].ready
    return ConditionResult(
        "True", "Serving", f"Requests are answered; {count} router pod{'' if count == 1 else 's'} ready."
    )


def _asleep(inputs: StatusInputs) -> ConditionResult:
    if inputs.activity_known:
        message = (
            "No request came for a while, so P and D have no pods. The next one starts them, and waits until then."
        )
        return ConditionResult("True", ASLEEP, message)
    message = (
        "P and D have no pods, and not every router pod tells whether a request waits there (port "
        f"{names.ACTIVATOR_STATE_PORT}; a NetworkPolicy of your own may be in the way). That would not start them."
    )
    return ConditionResult("Unknown", ASLEEP, message)
