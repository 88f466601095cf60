"""The condition Ready: whether requests are answered."""

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.planning.conditions import ASLEEP, ConditionResult
from pdinference.planning.status.situation import Situation
from pdinference.planning.troubles import Advice


def ready(situation: Situation, problem: Advice | None) -> ConditionResult:
    """Whether requests are answered, and if not, because of which problem."""
    router = situation.workloads.get(Role.ROUTER)
    if situation.asleep and not situation.stopped and router is not None and router.ready > 0:
        return _asleep(situation)
    return answered(situation) or ConditionResult(
        "False", *(problem or Advice("Starting", "No router pod is ready yet."))
    )


def answered(situation: Situation) -> ConditionResult | None:
    """That requests are answered; None when they are not."""
    if not situation.answers:
        return None
    count = situation.workloads[Role.ROUTER].ready
    return ConditionResult(
        "True", "Serving", f"Requests are answered; {count} router pod{'' if count == 1 else 's'} ready."
    )


def _asleep(situation: Situation) -> ConditionResult:
    if situation.heard:
        message = (
            "No request came for a while, so P and D have no pods. The next one starts them, and waits until then."
        )
        return ConditionResult("True", ASLEEP, message)
    message = (
        "P and D have no pods, and not every router pod tells whether a request waits there (port "
        f"{names.ACTIVATOR_STATE_PORT}; a NetworkPolicy of your own may be in the way). That would not start them."
    )
    return ConditionResult("Unknown", ASLEEP, message)
