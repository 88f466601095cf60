"""`--kv-transfer-config` of each role (vllm/config/kv_transfer.py), as far as it is common to all connectors."""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.registry import connector_of
from pdinference.engine.kv_tiers import offloading_config

KV_ROLES = {Role.PARAMETER: "kv_producer", Role.DECODE: "kv_consumer"}
_OF_ONE_CONNECTOR = ("kv_connector_module_path", "kv_connector_extra_config")
_FAILURE_POLICY = {"Recompute": "recompute", "Fail": "fail"}


def kv_transfer_config(resource: PDInference, role: Role) -> dict[str, Any]:
    """The value of `--kv-transfer-config`; empty without KV transfer and tiers."""
    own = resource.spec.of(role)
    if not resource.spec.transfers_kv:
        return offloading_config(resource, role, own.kv_tiers) if own.kv_tiers else {}
    transfer = _transfer_config(resource, role)
    if own.kv_tiers is None:
        return transfer
    # The first connector with KV cache for a request loads it. D loads the blocks of P from P, and the blocks of
    # preempted requests from its tiers.
    connectors = [transfer, offloading_config(resource, role, own.kv_tiers)]
    common = {key: value for key, value in transfer.items() if key not in _OF_ONE_CONNECTOR}
    return common | {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": connectors}}


def _transfer_config(resource: PDInference, role: Role) -> dict[str, Any]:
    transfer = resource.spec.transfer
    config: dict[str, Any] = {
        **connector_of(resource.spec).config(resource, role),
        "kv_role": KV_ROLES[role],
        "kv_load_failure_policy": _FAILURE_POLICY[transfer.on_failure],
    }
    if resource.spec.of(role).accelerator.type == "CPU":
        config["kv_buffer_device"] = "cpu"
    return config
