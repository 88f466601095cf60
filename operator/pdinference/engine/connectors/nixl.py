"""Nixl: D pulls KV cache from P. With pipeline stages, P pushes it to D.

D cannot pull from stages ("Number of KV layers must match"). D waits for every stage: the response of P has their
number (`pp_size`), and the router sends it to D.
"""

from typing import Any

from pdinference.api.engines import Slot
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.command import EnvironmentVariable, pod_field_variable, variable
from pdinference.engine.connectors.connector import Connector, Port
from pdinference.engine.connectors.handover import NixlHandover
from pdinference.engine.connectors.known_fault import KnownFault
from pdinference.engine.connectors.own_class import OwnClass

_SIDE_CHANNEL = Port("kv-side-channel", 5600)
"""Port of P for requests of NIXL metadata by D (vLLM's default for VLLM_NIXL_SIDE_CHANNEL_PORT)."""


class Nixl(Connector):
    """vLLM's NixlConnector and NixlPushConnector. engine/devices.py sets the variables of UCX for all connectors."""

    vllm_names = ("NixlConnector", "NixlPushConnector", "NixlPullConnector")
    handover = NixlHandover()
    is_measured = True
    known_faults = (
        KnownFault(
            (0, 25, 0),
            (0, 25, 1),
            lambda spec: spec.rdma is not None,
            "D was seen to end with a segmentation fault at the first transfer after a P pod had restarted. Use a "
            "later release.",
            "github.com/vllm-project/vllm/issues/49238",
        ),
        KnownFault(
            (0, 0, 0),
            (0, 26, 0),
            lambda spec: spec.host_local is not None,
            "With HostLocal, a P that is killed cannot start again while D lives, because D keeps its GPU memory and "
            "the image's NIXL is older than 1.5.0. Use a later release, or an image with NIXL 1.5.0 or 1.5.1.",
            "docs/adr/0029-memory-of-a-dead-peer.md",
            official=True,
        ),
    )
    tried = "transfers and tiers in this project's tests on CPU, and on an H100 (over TCP)"

    def config(self, resource: PDInference, role: Role) -> dict[str, Any]:
        """The push connector with pipeline stages, and the pull connector otherwise."""
        if resource.spec.parameter.parallelism.pipeline > 1:
            return {"kv_connector": "NixlPushConnector"}
        return super().config(resource, role)

    def own_class(self, resource: PDInference, _role: Role) -> OwnClass | None:
        """With the path HostLocal, a class that lets go of the GPU memory of a peer whose process is gone."""
        if resource.spec.host_local is None:
            return None
        return OwnClass(self.vllm_names[0], "pdinference_nixl", imports=("pdinference_cuda_ipc",))

    def environment(self, _transfer: Transfer, slot: Slot | None = None) -> list[EnvironmentVariable]:
        """Address of the side channel. It must be the pod's address, because D connects to the address from P."""
        return [
            pod_field_variable("VLLM_NIXL_SIDE_CHANNEL_HOST", "status.podIP"),
            variable("VLLM_NIXL_SIDE_CHANNEL_PORT", str(_side_channel(slot).number)),
        ]

    def ports(self, _role: Role, slot: Slot | None = None) -> tuple[Port, ...]:
        """The port of the side channel."""
        return (_side_channel(slot),)


def _side_channel(slot: Slot | None) -> Port:
    """The port of an engine: vLLM listens on one for each data-parallel rank (nixl/base_scheduler.py)."""
    return _SIDE_CHANNEL if slot is None else Port(f"kv-channel-{slot.index}", _SIDE_CHANNEL.number + slot.index)
