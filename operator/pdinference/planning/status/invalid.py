"""The status of a resource whose stored spec is invalid."""

from datetime import datetime

from pdinference.api.v1alpha1 import Status
from pdinference.planning import conditions
from pdinference.planning.conditions import ASLEEP, Judgement
from pdinference.planning.memory import NO_VERDICT, MemoryVerdict
from pdinference.planning.observed import WorkloadState
from pdinference.planning.status.model import memory_fits
from pdinference.planning.status.ready import answers

_INVALID = "InvalidSpec"


def invalid_status(
    generation: int,
    message: str,
    *,
    router: WorkloadState | None,
    previous: Status,
    now: datetime,
    memory: MemoryVerdict = NO_VERDICT,
) -> Status:
    """What the spec breaks is told; the children are left alone, and so is what is known of them."""
    ready, *others = conditions.written(
        {
            conditions.READY: _ready(router, previous),
            conditions.PROGRESSING: Judgement("False", _INVALID, message),
            conditions.MEMORY_FITS: memory_fits(memory),
        },
        generation=generation,
        now=now,
    )
    told = {ready.type, *(other.type for other in others)}
    kept = [old for old in previous.conditions if old.type not in told]
    return previous.model_copy(
        update={
            "observed_generation": generation,
            "plan": memory.status,
            "conditions": conditions.carry_over([ready, *kept, *others], previous.conditions),
        }
    )


def _ready(router: WorkloadState | None, previous: Status) -> Judgement:
    if any(old.type == conditions.READY and old.reason in {ASLEEP, _INVALID} for old in previous.conditions):
        message = "P and D sleep, and no request starts them before the spec is corrected."
        return Judgement("False", _INVALID, message)
    return answers(router) or Judgement("False", "NotServing", "The spec is invalid; nothing was created.")
