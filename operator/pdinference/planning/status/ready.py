"""The condition Ready: whether requests are answered."""

from pdinference.api.names import Role
from pdinference.planning.conditions import ASLEEP, Judgement
from pdinference.planning.observed import WorkloadState
from pdinference.planning.status.situation import Situation
from pdinference.planning.troubles import Advice


def ready(situation: Situation, problem: Advice | None) -> Judgement:
    """Whether requests are answered, and if not, because of which problem."""
    router = situation.workloads.get(Role.ROUTER)
    if situation.asleep and not situation.stopped and router is not None and router.ready > 0:
        message = (
            "No request came for a while, so P and D have no pods. The next one starts them, and waits until then."
        )
        return Judgement("True", ASLEEP, message)
    answered = None if situation.pair_starts else answers(router)
    return answered or Judgement("False", *(problem or Advice("Starting", "No router pod is ready yet.")))


def answers(router: WorkloadState | None) -> Judgement | None:
    """That requests are answered; None when no router pod is there to do so."""
    if router is None or router.ready == 0:
        return None
    message = f"Requests are answered; {router.ready} router pod{'' if router.ready == 1 else 's'} ready."
    return Judgement("True", "Serving", message)
