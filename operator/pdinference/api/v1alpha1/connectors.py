"""The KV connectors of `spec.transfer` and their limits.

The limits come from vLLM's source (vllm/distributed/kv_transfer). connector_rules.py turns this table into rules.
NIXL's rules on parallelism are in resource.py and apply to all connectors. engine/connectors has the settings that vLLM
and the router get.

Tests: tests/engine/connectors/test_registry.py, tests/api/test_validation.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ConnectorName = Literal["Nixl", "Mooncake", "LMCache", "SharedStorage"]


@dataclass(frozen=True)
class ConnectorLimits:
    """Limits of a connector. The defaults describe a connector that moves blocks between GPUs.

    Attributes:
        accelerators: GPU: GPUs only. Same: GPUs or CPUs, but the same type for P and D. Any: all combinations.
        direct: Whether KV cache moves from P to D itself, and not through a server or a volume.
        several_nodes: Whether it finds the ranks of an instance at more than one address.
        rank_shaped: Whether KV blocks have the shape of the rank that wrote them; P and D then need equal ranks.
        one_rank: Why D can have only one rank; empty if D can have several.
        nvlink: Whether it uses NVLink between the GPUs of a pod (the path HostLocal).
        one_step: Whether vLLM must compute a prompt in one step, starting at its first token.
        without_tiers: Why `kvTiers` cannot be combined with it; empty if they can.
        without_staged_tiers: Whether P cannot combine tiers and pipeline stages.
        recurrent: Whether it moves the state of recurrent layers. Starts: vLLM starts. Layout: it starts with
            `VLLM_SSM_CONV_STATE_LAYOUT=DS` only. Refused: it does not start.
        environment: The variables that the operator sets for it and rejects in `env`, each with the reason.
    """

    accelerators: Literal["GPU", "Same", "Any"] = "GPU"
    direct: bool = True
    several_nodes: bool = False
    rank_shaped: bool = False
    one_rank: str = ""
    nvlink: bool = False
    one_step: bool = False
    without_tiers: str = ""
    without_staged_tiers: bool = False
    recurrent: Literal["Starts", "Layout", "Refused"] = "Starts"
    environment: Mapping[str, str] = field(default_factory=dict)


_PORT = "the port is part of the NetworkPolicy"

LIMITS: dict[ConnectorName, ConnectorLimits] = {
    "Nixl": ConnectorLimits(
        nvlink=True,
        accelerators="Any",
        several_nodes=True,
        # MultiConnector passes the addresses of all stages to each connector; vLLM's offloading rejects them.
        without_staged_tiers=True,
        recurrent="Layout",
        environment={
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "the operator sets it to the address of the pod",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": _PORT,
        },
    ),
    "Mooncake": ConnectorLimits(environment={"VLLM_MOONCAKE_BOOTSTRAP_PORT": _PORT}),
    "LMCache": ConnectorLimits(
        direct=False, rank_shaped=True, without_tiers="LMCache has its own tiers", recurrent="Refused"
    ),
    "SharedStorage": ConnectorLimits(
        direct=False,
        accelerators="Same",
        rank_shaped=True,
        # example_connector.py names files by layer, so ranks would overwrite each other's files.
        one_rank="SharedStorage writes one file per layer, so that several ranks would overwrite each other.",
        # It stores the tokens of one engine step, starting at the first token of the prompt.
        one_step=True,
        without_tiers="SharedStorage does not support them",
        recurrent="Refused",
    ),
}

CONNECTOR_ENVIRONMENT = {name: reason for limits in LIMITS.values() for name, reason in limits.environment.items()}
"""All variables that the operator sets for connectors, each with the reason why users cannot set it."""
