"""The conditions of a PDInference: what each one means, and the rules for changing one.

The operator's reconciler is the only writer of all of them.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Condition
from pdinference.planning.reported import plain

READY = "Ready"
"""True while requests are answered: at least one router pod is ready, which it is only with a P and a D pod of its
revision behind it. Stays True through a roll-out, and when a roll-out is stuck, as long as the old pair answers. True
(`Asleep`) as well while P and D have no pods because nobody asks (`scaleToZero`), but Unknown when not every router pod
tells whether a request waits; False again while they start."""

PARAMETER_READY = "ParameterReady"
"""True when every wanted P pod of the current revision is ready."""

DECODE_READY = "DecodeReady"
"""True when every wanted D pod of the current revision is ready."""

ROUTER_READY = "RouterReady"
"""True when every wanted router pod is ready and of the current template."""

MODEL_READY = "ModelReady"
"""True when the Job that downloads or inspects the model is done and, of a model on a volume, pods of the current
revision found its files whole before vLLM started. False as well when one of them did not (`NoUsableModel`), Unknown
before one looked. While a download is not done, P and D pods of a new revision are not created."""

PROGRESSING = "Progressing"
"""True while the operator works towards the current spec (`RollingOut`), or waits for GPUs of its budget to do so
(`GpuBudget`), or, with all of it rolled out, for pods to get ready (`NotAllReady`). False when it is done
(`RolloutComplete`) and when it cannot go on without a person (`InvalidSpec`, `NameConflict`, `NotServed`, or the API
server's reason for a refusal)."""

MEMORY_FITS = "MemoryFits"
"""True when the memory plan finds room for the model and at least one request of the longest length on the devices of
both roles, False when it does not (`DoesNotFit`), Unknown while the model's shape or a device's memory is not known."""

PINNED = "Pinned"
"""True when P's pods run only on products that the spec names, or claim exact devices. False (`NotPinned`) when they
may run on any node that has the extended resource; that is valid. The message says where P and D run. Absent when P
runs on CPU."""

AUTOSCALING = "Autoscaling"
"""There only with `autoscaling` in a role. True while the number of pods follows the load, if need be only as far as
limits allow (the reason then says so; `GpuBudget` and `Ratio` are those of `spec.autoscaling`). False when the load is
not known or the number cannot be changed; it then stays as it is. Unknown until Kubernetes has looked at the load for
the first time."""

LIMITED = "Limited"
"""Of a PDScaler. True while the role has another number of replicas than the recommended one; the reason says why."""

ASLEEP = "Asleep"
"""Reason of conditions while P and D have no pods because nobody asks."""

INVALID = "InvalidSpec"
"""Reason of conditions that do not hold before the stored spec is corrected."""

ROLE_CONDITIONS = {
    Role.PARAMETER: PARAMETER_READY,
    Role.DECODE: DECODE_READY,
    Role.ROUTER: ROUTER_READY,
}

ROLE_WORDS = {Role.PARAMETER: "P", Role.DECODE: "D", Role.ROUTER: "Router"}
"""What messages call the roles."""

Truth = Literal["True", "False", "Unknown"]

_MESSAGE_LIMIT = 2000  # some API server messages quote whole objects


class Judgement(NamedTuple):
    """What a condition says: its status, reason and message."""

    status: Truth
    reason: str
    message: str


def written(judgements: Mapping[str, Judgement | None], *, generation: int, now: datetime) -> list[Condition]:
    """The conditions, by their types; without those that do not apply (None)."""
    return [
        condition(type_, *judgement, generation=generation, now=now)
        for type_, judgement in judgements.items()
        if judgement is not None
    ]


def condition(
    type_: str,
    status: Truth,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> Condition:
    """A condition as of now; `carry_over` corrects its transition time."""
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=plain(message, _MESSAGE_LIMIT),
        last_transition_time=now.replace(microsecond=0),
        observed_generation=generation,
    )


def carry_over(new: Iterable[Condition], old: Iterable[Condition]) -> list[Condition]:
    """The new conditions, with the transition time of those whose status did not change."""
    before = {condition.type: condition for condition in old}
    return [
        fresh.model_copy(update={"last_transition_time": before[fresh.type].last_transition_time})
        if fresh.type in before and before[fresh.type].status == fresh.status
        else fresh
        for fresh in new
    ]
