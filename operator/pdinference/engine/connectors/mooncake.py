"""Mooncake: P pushes KV cache to D."""

from typing import Any

from pdinference.api.engines import Slot
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.command import EnvironmentVariable, pod_field_variable, variable
from pdinference.engine.connectors.connector import Connector, Port
from pdinference.engine.connectors.handover import MOONCAKE_BOOTSTRAP_PORT, MooncakeHandover

_BOOTSTRAP = Port("kv-bootstrap", MOONCAKE_BOOTSTRAP_PORT, router=True)
"""Where the router and D get the Mooncake addresses of P."""


class Mooncake(Connector):
    """vLLM's MooncakeConnector."""

    vllm_names = ("MooncakeConnector",)
    handover = MooncakeHandover()
    tried = (
        "transfers on an H100 with `protocol: tcp` (mooncake-transfer-engine-cuda13 0.3.14), without the router and "
        "without tiers. Through the router on CPU (mooncake-transfer-engine-non-cuda 0.3.13, two lines of vLLM's "
        "connector that ask for a GPU removed): 13,750 of 13,750 prompt tokens came from P, and 24 of 24 texts were "
        "those of P alone. `rdma` was not tried"
    )

    def config(self, resource: PDInference, role: Role) -> dict[str, Any]:
        """The protocol, and the selected RDMA devices."""
        transfer = resource.spec.transfer
        # UCX appends the port to the name of a device. Mooncake does not.
        devices = [device.partition(":")[0] for device in transfer.rdma.net_devices] if transfer.rdma else []
        chosen = {"device_name": ",".join(devices)} if devices else {}
        settings = {"mooncake_protocol": transfer.mooncake.protocol, **chosen}
        return {**super().config(resource, role), "kv_connector_extra_config": settings}

    def environment(self, _transfer: Transfer, _slot: Slot | None = None) -> list[EnvironmentVariable]:
        """The address and port of the bootstrap server."""
        return [
            pod_field_variable("VLLM_HOST_IP", "status.podIP"),
            variable("VLLM_MOONCAKE_BOOTSTRAP_PORT", str(_BOOTSTRAP.number)),
        ]

    def ports(self, role: Role, _slot: Slot | None = None) -> tuple[Port, ...]:
        """The port of the bootstrap server, which only P runs."""
        return (_BOOTSTRAP,) if role is Role.PARAMETER else ()
