"""The volume of a pod for compiled code that outlives it.

Tests: tests/engine/test_compile_cache.py
"""

from typing import Any, Final

from pdinference.api.v1alpha1 import Spec
from pdinference.engine.compile_cache import COMPILE_CACHE_MOUNT

Fields = dict[str, Any]

_NAME: Final = "compile-cache"


def compile_cache_volumes(spec: Spec) -> list[Fields]:
    """The volume; empty without one in the spec."""
    cache = spec.engine.compile_cache
    if cache is None:
        return []
    if claim := cache.persistent_volume_claim:
        return [{"name": _NAME, "persistentVolumeClaim": {"claimName": claim.claim_name}}]
    return [{"name": _NAME, "hostPath": {"path": cache.host_path.path, "type": "Directory"}}] if cache.host_path else []


def compile_cache_mounts(spec: Spec) -> list[Fields]:
    """Its mount in the vLLM containers."""
    return [{"name": volume["name"], "mountPath": COMPILE_CACHE_MOUNT} for volume in compile_cache_volumes(spec)]
