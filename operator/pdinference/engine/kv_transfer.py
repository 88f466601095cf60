"""vLLM's KV-transfer configuration for each role (vllm/config/kv_transfer.py)."""

from typing import Any

from pdinference.api.names import SIDE_CHANNEL_PORT, Role
from pdinference.api.v1alpha1 import RoleSpec
from pdinference.engine.command import EnvironmentVariable, pod_field_variable, variable

_KV_ROLE = {Role.PARAMETER: "kv_producer", Role.DECODE: "kv_consumer"}


def kv_transfer_config(role: Role, spec: RoleSpec) -> dict[str, Any]:
    """The value of `--kv-transfer-config`.

    A transfer that fails makes decode compute the prompt itself: the request is answered late rather than not at all.
    """
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": _KV_ROLE[role],
        "kv_load_failure_policy": "recompute",
    }
    if spec.accelerator.type == "CPU":
        config["kv_buffer_device"] = "cpu"
    return config


def kv_transfer_environment() -> list[EnvironmentVariable]:
    """NIXL's side channel: decode dials the address that prefill announces, so it has to be the pod's own."""
    return [
        pod_field_variable("VLLM_NIXL_SIDE_CHANNEL_HOST", "status.podIP"),
        variable("VLLM_NIXL_SIDE_CHANNEL_PORT", str(SIDE_CHANNEL_PORT)),
    ]
