"""vLLM's KV-transfer configuration for each role (vllm/config/kv_transfer.py)."""

from typing import Any

from pdinference.api.names import MOONCAKE_BOOTSTRAP_PORT, SIDE_CHANNEL_PORT, Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.command import EnvironmentVariable, pod_field_variable, variable
from pdinference.engine.connectors.nixl import pushes_from_stages, staged_push
from pdinference.engine.connectors.own_class import OwnConnector
from pdinference.engine.connectors.shared_storage import shared_files
from pdinference.engine.kv_tiers import offloading_config

KV_ROLES = {Role.PARAMETER: "kv_producer", Role.DECODE: "kv_consumer"}
CONNECTOR_CLASSES = {
    "Nixl": "NixlConnector",
    "Mooncake": "MooncakeConnector",
    "LMCache": "LMCacheConnectorV1",
}
_OF_ONE_CONNECTOR = ("kv_connector_module_path", "kv_connector_extra_config")
_FAILURE_POLICY = {"Recompute": "recompute", "Fail": "fail"}


def own_connector(resource: PDInference, role: Role) -> OwnConnector | None:
    """The connector of ours that a role needs; None where one of vLLM's will do."""
    if resource.spec.transfer.connector == "SharedStorage":
        return shared_files(resource)
    return staged_push(resource) if role is Role.DECODE and pushes_from_stages(resource) else None


def kv_transfer_config(resource: PDInference, role: Role) -> dict[str, Any]:
    """The value of `--kv-transfer-config`."""
    own = resource.spec.of(role)
    transfer = _transfer_config(resource, role)
    if own.kv_tiers is None:
        return transfer
    # The first connector that has KV cache for a request loads it: D takes what P computed from P, and what it kept of
    # a request itself from its tiers.
    connectors = [transfer, offloading_config(resource, role, own.kv_tiers)]
    common = {key: value for key, value in transfer.items() if key not in _OF_ONE_CONNECTOR}
    return common | {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": connectors}}


def _transfer_config(resource: PDInference, role: Role) -> dict[str, Any]:
    transfer = resource.spec.transfer
    config: dict[str, Any] = {
        **_connector(resource, role),
        "kv_role": KV_ROLES[role],
        "kv_load_failure_policy": _FAILURE_POLICY[transfer.on_failure],
    }
    if resource.spec.of(role).accelerator.type == "CPU":
        config["kv_buffer_device"] = "cpu"
    return config


def _connector(resource: PDInference, role: Role) -> dict[str, Any]:
    """The connector, by vLLM's name of it, and its own settings."""
    if own := own_connector(resource, role):
        return own.config()
    if pushes_from_stages(resource):
        return {"kv_connector": "NixlPushConnector"}
    transfer = resource.spec.transfer
    config: dict[str, Any] = {"kv_connector": CONNECTOR_CLASSES[transfer.connector]}
    if extra := _extra_config(transfer):
        config["kv_connector_extra_config"] = extra
    return config


def _extra_config(transfer: Transfer) -> dict[str, Any]:
    match transfer.connector:
        case "Mooncake":
            # UCX writes a device with its port, Mooncake without.
            devices = [device.partition(":")[0] for device in transfer.rdma.net_devices] if transfer.rdma else []
            chosen = {"device_name": ",".join(devices)} if devices else {}
            return {"mooncake_protocol": transfer.mooncake.protocol, **chosen}
        case _:
            return {}


def kv_transfer_options(transfer: Transfer) -> dict[str, Any]:
    """vLLM's options that a connector needs to work (api/v1alpha1/connectors.py says why)."""
    if transfer.connector != "SharedStorage":
        return {}
    return {"enable-prefix-caching": False, "enable-chunked-prefill": False}


def kv_transfer_environment(transfer: Transfer) -> list[EnvironmentVariable]:
    """What a connector reads from the environment: where the other half of the pair, or the cache, is to be reached."""
    match transfer.connector:
        case "Nixl":
            return [
                # Decode dials the address that prefill announces, so it has to be the pod's own.
                pod_field_variable("VLLM_NIXL_SIDE_CHANNEL_HOST", "status.podIP"),
                variable("VLLM_NIXL_SIDE_CHANNEL_PORT", str(SIDE_CHANNEL_PORT)),
            ]
        case "Mooncake":
            return [
                pod_field_variable("VLLM_HOST_IP", "status.podIP"),
                variable("VLLM_MOONCAKE_BOOTSTRAP_PORT", str(MOONCAKE_BOOTSTRAP_PORT)),
            ]
        case "LMCache":
            return _lmcache_environment(transfer)
        case _:
            return []


def _lmcache_environment(transfer: Transfer) -> list[EnvironmentVariable]:
    remote_url = transfer.lm_cache.remote_url if transfer.lm_cache else ""
    return [
        variable("LMCACHE_REMOTE_URL", remote_url),
        variable("LMCACHE_REMOTE_SERDE", "naive"),
        # The last, incomplete chunk of a prompt has to move, too, or D would compute it.
        variable("LMCACHE_SAVE_UNFULL_CHUNK", "True"),
        # P and D have to find the same hash for the same tokens, and Python's own differs from process to process.
        variable("PYTHONHASHSEED", "0"),
    ]
