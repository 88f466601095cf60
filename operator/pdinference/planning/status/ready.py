"""The condition Ready: whether requests are answered."""

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.planning.conditions import ASLEEP, Judgement
from pdinference.planning.status.situation import Situation
from pdinference.planning.troubles import Advice


def ready(situation: Situation, problem: Advice | None) -> Judgement:
    """Whether requests are answered, and if not, because of which problem."""
    router = situation.workloads.get(Role.ROUTER)
    if situation.asleep and not situation.stopped and router is not None and router.ready > 0:
        return _asleep(situation)
    return answered(situation) or Judgement("False", *(problem or Advice("Starting", "No router pod is ready yet.")))


def answered(situation: Situation) -> Judgement | None:
    """That requests are answered; None when they are not."""
    if not situation.answers:
        return None
    count = situation.workloads[Role.ROUTER].ready
    return Judgement("True", "Serving", f"Requests are answered; {count} router pod{'' if count == 1 else 's'} ready.")


def _asleep(situation: Situation) -> Judgement:
    if situation.heard:
        message = (
            "No request came for a while, so P and D have no pods. The next one starts them, and waits until then."
        )
        return Judgement("True", ASLEEP, message)
    message = (
        "P and D have no pods, and not every router pod tells whether a request waits there (port "
        f"{names.ACTIVATOR_STATE_PORT}; a NetworkPolicy of your own may be in the way). That would not start them."
    )
    return Judgement("Unknown", ASLEEP, message)
