"""Folders of KV cache on volumes, named by everything that decides what is in a block."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from pdinference.api.v1alpha1 import PDInference

_DIGEST_LENGTH = 16


def cache_folder(resource: PDInference, roles: Mapping[str, Any], *, ignored: Collection[str] = ()) -> str:
    """Name of the folder that pods with the same KV cache share.

    vLLM's connectors and tiers know a block by its tokens, or a model by its path, which two models can share. So the
    name covers everything that may change a block. Defaults are left out: an operator that knows more fields finds the
    same folder again.

    Args:
        resource: The resource that the pods belong to.
        roles: What counts of P and D, by any name.
        ignored: Fields of `spec.model` that change no block.
    """
    spec = resource.spec
    excluded = {"architecture", "inspect", *ignored}
    parts = {
        "namespace": resource.metadata.namespace,
        "name": resource.metadata.name,
        "model": spec.model.model_dump(mode="json", exclude_defaults=True, exclude=excluded),
        "engine": spec.engine.model_dump(mode="json", exclude_defaults=True),
        **roles,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]
