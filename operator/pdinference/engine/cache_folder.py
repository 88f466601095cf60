"""Names of KV cache folders on volumes, which depend on all settings that affect the content of blocks.

Tests: tests/engine/test_kv_tiers.py, tests/engine/connectors/test_shared_storage.py
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from pdinference.api.v1alpha1 import PDInference

_DIGEST_LENGTH = 16


def cache_folder(resource: PDInference, roles: Mapping[str, Any], *, ignored: Collection[str] = ()) -> str:
    """Name of the folder that pods with the same KV cache share.

    vLLM's connectors and tiers identify a block by its tokens, and a model by its path. Two models can have the same
    path, so the name covers all settings that may change a block. Default values are left out, so that an operator
    version with more fields computes the same name.

    Args:
        resource: The resource that owns the pods.
        roles: Settings of P and D that affect blocks, by any name.
        ignored: Fields of `spec.model` that do not affect blocks.
    """
    spec = resource.spec
    excluded = {"architecture", "inspect", *ignored}
    parts = {
        "namespace": resource.metadata.namespace,
        "name": resource.metadata.name,
        "model": spec.model.model_dump(mode="json", exclude_defaults=True, exclude=excluded),
        "engine": spec.engine.model_dump(mode="json", exclude_defaults=True, exclude={"compile_cache"}),
        **roles,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]
