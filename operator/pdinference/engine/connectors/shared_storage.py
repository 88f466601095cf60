"""The connector SharedStorage: KV cache goes from P to D through files, by a subclass of vLLM's example."""

import hashlib
import json
from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.engine import EngineOptions
from pdinference.engine.connectors.own_class import OwnConnector

SHARED_STORAGE_MOUNT = "/kv-shared"
"""Where the volume of the connector is mounted."""

_DIGEST_LENGTH = 16


def shared_files(resource: PDInference) -> OwnConnector:
    """The connector, the same for both roles."""
    # A folder of our own: whatever is in it may be deleted.
    folder = f"{SHARED_STORAGE_MOUNT}/pdinference/{_same_cache(resource)}"
    return OwnConnector("SharedFilesConnector", "shared_files", {"shared_storage_path": folder})


def _same_cache(resource: PDInference) -> str:
    """Name of the folder of a pair: the connector knows a prompt by its tokens, and not whose cache it is."""
    spec = resource.spec
    parts: dict[str, Any] = {
        "namespace": resource.metadata.namespace,
        "name": resource.metadata.name,
        "model": spec.model.model_dump(mode="json", exclude_defaults=True, exclude={"architecture", "inspect", "lora"}),
        "engine": spec.engine.model_dump(mode="json", exclude_defaults=True),
    } | {
        role: spec.of(role).model_dump(mode="json", exclude_defaults=True, include={*EngineOptions.model_fields})
        for role in (Role.PARAMETER, Role.DECODE)
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]
