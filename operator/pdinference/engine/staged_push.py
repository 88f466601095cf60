"""KV cache from pipeline stages of P: pushed, by a connector that tells D how many stages there are."""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference

STAGED_PUSH_MODULE = "pdinference_staged_push"


def pushes_from_stages(resource: PDInference) -> bool:
    """Whether vLLM has to push the KV cache: D cannot pull it from stages ("Number of KV layers must match")."""
    return resource.spec.transfer.connector == "Nixl" and resource.spec.parameter.parallelism.pipeline > 1


def push_config(resource: PDInference, role: Role) -> dict[str, Any]:
    """The part of `--kv-transfer-config` that names the connector; P's is vLLM's own."""
    if role is Role.PARAMETER:
        return {"kv_connector": "NixlPushConnector"}
    return {
        "kv_connector": "StagedPushConnector",
        "kv_connector_module_path": STAGED_PUSH_MODULE,
        "kv_connector_extra_config": {"parameter_stages": resource.spec.parameter.parallelism.pipeline},
    }
