"""The KV connectors that `spec.transfer` offers, and what each cannot be combined with.

The limits were read in vLLM's source (vllm/distributed/kv_transfer). connector_rules.py makes rules of this table.
NIXL's own rules on parallelism stand with the spec and hold for all connectors. engine/connectors has what vLLM and the
router get for a connector.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ConnectorName = Literal["Nixl", "Mooncake", "LMCache", "SharedStorage"]


@dataclass(frozen=True)
class Limits:
    """What a connector works with. The defaults are those of a connector between GPUs that moves blocks.

    Attributes:
        accelerators: GPU: GPUs only. Same: CPUs too, but not a GPU and a CPU. Any: every combination.
        several_nodes: Whether it finds the ranks of a P instance at more than one address.
        rank_shaped: Whether KV cache keeps the shape of the rank that wrote it, so that P and D need the same ranks.
        one_rank: Why D can have one rank only; empty where it can have more.
        one_step: Whether a prompt has to be computed in one step and from its first token on.
        without_tiers: Why `kvTiers` cannot be combined with it; empty where they can.
        without_staged_tiers: Whether P cannot have both tiers and pipeline stages.
        environment: The variables that the operator sets for it and refuses in `env`, each with the reason.
    """

    accelerators: Literal["GPU", "Same", "Any"] = "GPU"
    several_nodes: bool = False
    rank_shaped: bool = False
    one_rank: str = ""
    one_step: bool = False
    without_tiers: str = ""
    without_staged_tiers: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


_PORT = "the port is part of the NetworkPolicy"

LIMITS: dict[ConnectorName, Limits] = {
    "Nixl": Limits(
        accelerators="Any",
        several_nodes=True,
        # MultiConnector hands the addresses of all stages to each of its connectors; vLLM's offloading refuses them.
        without_staged_tiers=True,
        environment={
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "it has to be the pod's own address",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": _PORT,
        },
    ),
    "Mooncake": Limits(environment={"VLLM_MOONCAKE_BOOTSTRAP_PORT": _PORT}),
    "LMCache": Limits(rank_shaped=True, without_tiers="LMCache has tiers of its own"),
    "SharedStorage": Limits(
        accelerators="Same",
        rank_shaped=True,
        # example_connector.py names files by layer, so that ranks would overwrite each other's.
        one_rank="SharedStorage writes one file for each layer, whichever rank it comes from.",
        # It stores what one step of the engine holds, from the first token on.
        one_step=True,
        without_tiers="SharedStorage has none",
    ),
}

CONNECTOR_ENVIRONMENT = {name: reason for limits in LIMITS.values() for name, reason in limits.environment.items()}
"""Every variable that the operator sets for a connector, with why a user cannot."""
