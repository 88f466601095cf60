"""The conditions of the model: whether it is there, and whether it fits into memory."""

from pdinference.api.names import Role
from pdinference.planning.conditions import Judgement, Truth
from pdinference.planning.memory import MemoryVerdict
from pdinference.planning.model import ModelView, model_advice
from pdinference.planning.status.situation import Situation
from pdinference.planning.troubles import Advice

_FITS: dict[bool | None, tuple[Truth, str]] = {
    True: ("True", "Fits"),
    False: ("False", "DoesNotFit"),
    None: ("Unknown", "NotKnown"),
}


def model_ready(situation: Situation) -> Judgement | None:
    """ModelReady; None without a Job for the model."""
    if situation.model is None:
        return None
    return Judgement("True" if situation.model.done else "False", *job_advice(situation, situation.model))


def job_advice(situation: Situation, model: ModelView) -> Advice:
    """How far the Job for the model is, or what is wrong with it."""
    pods = [pod for pod in situation.pods if pod.role is Role.MODEL and not pod.gone]
    return model_advice(model, pods, situation.namespace)


def memory_fits(memory: MemoryVerdict) -> Judgement:
    """MemoryFits."""
    return Judgement(*_FITS[memory.fits], memory.message)
