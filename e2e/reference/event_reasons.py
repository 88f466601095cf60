"""The Events of a PDInference and of a PDBatch. docs/reference/events.md is made from this table."""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class EventReason:
    """One row.

    Attributes:
        reason: The reason. With `...` at its end, a reason of the condition follows.
        type: The type.
        when: When it is written.
    """

    reason: str
    type: Literal["Normal", "Warning"]
    when: str


OF_INFERENCE: Final = (
    EventReason("Created", "Normal", "The first revision is created."),
    EventReason("RolloutStarted", "Normal", "A revision is to replace another."),
    EventReason("RolloutFinished", "Normal", "A revision receives the requests."),
    EventReason("Ready", "Normal", "`Ready` has become True."),
    EventReason("NotReady", "Warning", "`Ready` is no longer True."),
    EventReason("FellAsleep", "Normal", "P and D lose their pods because no request came."),
    EventReason("WokeUp", "Normal", "P and D get their pods again."),
    EventReason(
        "ScaledUp", "Normal", "A replica count has grown. The Event has the load that was the reason, if it is known."
    ),
    EventReason("ScaledDown", "Normal", "A replica count has shrunk. The Event has the load, if it is known."),
    EventReason(
        "AutoscalingInactive",
        "Warning",
        "Replica counts do not follow the load. This is possible at first, before pods have reported a load.",
    ),
    EventReason("AutoscalingActive", "Normal", "Replica counts follow the load again."),
    EventReason("ScalingLimited", "Normal", "The ratio or the GPU budget begins to limit a role."),
    EventReason("RouteAccepted", "Normal", "Every Gateway has accepted the HTTPRoute."),
    EventReason("RouteNotAccepted", "Warning", "A Gateway does not accept the HTTPRoute."),
    EventReason("KVTransfer...", "Warning", "The KV transfer has a fault: `KVTransferSaturated`, for example."),
    EventReason("KVTransferRepair", "Warning", "A pod is restarted because its KV transfer is proven broken."),
    EventReason("KVTransferRepaired", "Normal", "KV cache gets through all pods after that."),
    EventReason("KVTransferNotRepaired", "Warning", "It does not, and no further pod is restarted."),
    EventReason("KVTransferRecovered", "Normal", "The KV transfer has no fault any more."),
    EventReason("ObjectivesMissed", "Warning", "Requests miss the latency objectives."),
    EventReason("ObjectivesMet", "Normal", "Requests keep the latency objectives again."),
)
"""Besides these, reasons of `ModelReady` and `Progressing` are Events of their own."""
