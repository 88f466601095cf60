"""Nixl: D pulls KV cache from P. From pipeline stages of P it is pushed.

D cannot pull from stages ("Number of KV layers must match"), so P runs vLLM's NixlPushConnector, and D a subclass of it
that knows the number of stages (engine/scripts/staged_push.py): vllm-router 0.1.17 does not pass it on.
"""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.command import EnvironmentVariable, pod_field_variable, variable
from pdinference.engine.connectors.connector import Connector, Port
from pdinference.engine.connectors.own_class import OwnClass

_SIDE_CHANNEL = Port("kv-side-channel", 5600)
"""Where D asks P for its NIXL metadata (vLLM's default for VLLM_NIXL_SIDE_CHANNEL_PORT)."""


class Nixl(Connector):
    """vLLM's NixlConnector and NixlPushConnector. What UCX needs is set for every connector (engine/devices.py)."""

    vllm_names = ("NixlConnector", "NixlPushConnector")
    tried = "transfers and tiers in this project's tests on CPU, and on an H100 (over TCP)"

    def config(self, resource: PDInference, role: Role) -> dict[str, Any]:
        """Stages push; everything else is pulled."""
        if role is Role.PARAMETER and _pushes(resource):
            return {"kv_connector": "NixlPushConnector"}
        return super().config(resource, role)

    def own_class(self, resource: PDInference, role: Role) -> OwnClass | None:
        """D's class where P has stages."""
        if role is not Role.DECODE or not _pushes(resource):
            return None
        stages = resource.spec.parameter.parallelism.pipeline
        return OwnClass("StagedPushConnector", "staged_push", {"parameter_stages": stages})

    def environment(self, _transfer: Transfer) -> list[EnvironmentVariable]:
        """Where the side channel listens: D dials the address that P announces, so it has to be the pod's own."""
        return [
            pod_field_variable("VLLM_NIXL_SIDE_CHANNEL_HOST", "status.podIP"),
            variable("VLLM_NIXL_SIDE_CHANNEL_PORT", str(_SIDE_CHANNEL.number)),
        ]

    def ports(self, _role: Role) -> tuple[Port, ...]:
        """The side channel."""
        return (_SIDE_CHANNEL,)


def _pushes(resource: PDInference) -> bool:
    return resource.spec.parameter.parallelism.pipeline > 1
