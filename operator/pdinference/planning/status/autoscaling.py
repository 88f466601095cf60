"""The condition Autoscaling: whether the number of pods follows the load."""

from pdinference.api import names
from pdinference.planning.conditions import ASLEEP, Judgement
from pdinference.planning.scaling.condition import judgement
from pdinference.planning.status.situation import Situation

_NOT_HEARD = (
    f"Router pods do not tell on port {names.ACTIVATOR_STATE_PORT} whether anybody asks, so P and D do not sleep; "
    "a NetworkPolicy of your own may be in the way."
)


def autoscaling(situation: Situation) -> Judgement | None:
    """What HPAs do, and whether the pair can sleep; None without autoscaling."""
    if not situation.autoscalers:
        return None
    if (judged := _without_load(situation)) is not None:
        return judged
    judged = judgement(situation.autoscalers, situation.measured, limited=situation.allocation.limited)
    # A router pod that starts tells in a moment.
    if situation.holds and not situation.heard and not situation.routers_change:
        return judged._replace(message=f"{judged.message} {_NOT_HEARD}")
    return judged


def _without_load(situation: Situation) -> Judgement | None:
    """That there is none to follow, as the pair sleeps, starts, or is about to go; None when there is."""
    if situation.asleep and not situation.stopped:
        message = "P and D have no pods because nobody asked; their load counts again when a request has started them."
        return Judgement("True", ASLEEP, message)
    if situation.pair_starts:
        return Judgement("Unknown", "Starting", "P and D start; their load counts as soon as they answer.")
    return None
