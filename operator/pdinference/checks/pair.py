"""What P and D must have in common, or they fail vLLM's KV handshake, or worse, pair silently.

Model, revision, image, dtype, KV dtype and block size have one field for both. Here is what options and variables of a
role could still pull apart: the factors of `compute_nixl_compatibility_hash` in
vllm/distributed/kv_transfer/kv_connector/v1/nixl/metadata.py, and what changes the layout of blocks.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import RoleSpec, Spec
from pdinference.api.validation import Problem

_SAME_OPTIONS = {
    "attention-backend": "the attention backend decides the layout of the KV cache",
    "attention-config": "the attention backend decides the layout of the KV cache",
    "config-format": "it changes which model is read",
    "disable-hybrid-kv-cache-manager": "it changes the layout of the KV cache",
    "no-disable-hybrid-kv-cache-manager": "it changes the layout of the KV cache",
    "hf-config-path": "it changes the model's shape",
    "hf-overrides": "it changes the model's shape",
    "kv-cache-dtype-skip-layers": "it changes the type of the KV cache",
    "model-impl": "it may change the layout of the KV cache",
    "prefix-caching-hash-algo": "blocks are named by their hash",
    "speculative-config": "a draft model has a KV cache too",
}
_SAME_VARIABLES = {
    "VLLM_ATTENTION_BACKEND": "the attention backend decides the layout of the KV cache",
    "VLLM_KV_CACHE_LAYOUT": "it decides the layout of the KV cache",
    "VLLM_USE_MODELSCOPE": "it changes where the model comes from",
    "HF_ENDPOINT": "it changes where the model comes from",
    # Measured: the connection ends at the first transfer (docs/tuning.md).
    "UCX_TCP_TX_SEG_SIZE": "UCX ends connections between different sizes",
    "UCX_TCP_RX_SEG_SIZE": "UCX ends connections between different sizes",
}


def pair_problems(spec: Spec) -> Iterator[Problem]:
    """Where P and D differ and must not."""
    options = {role: {**spec.engine.args, **spec.of(role).args} for role in ENGINE_ROLES}
    yield from _differing(_SAME_OPTIONS, options, "args")
    variables = {role: {**spec.engine.env, **spec.of(role).env, **_overlaid(spec.of(role))} for role in ENGINE_ROLES}
    yield from _differing(_SAME_VARIABLES, variables, "env")


def _differing(same: Mapping[str, str], values: Mapping[Role, Mapping[str, Any]], member: str) -> Iterator[Problem]:
    of_p, of_d = values[Role.PARAMETER], values[Role.DECODE]
    for name, why in same.items():
        if of_p.get(name) != of_d.get(name):
            yield Problem(
                f"spec.decode.{member}.{name}",
                f"{_shown(of_d, name)} for D and {_shown(of_p, name)} for P, but {why}, and P and D would not "
                f"understand each other. Set it once, in spec.engine.{member}.",
            )


def _shown(values: Mapping[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "not set"


def _overlaid(role: RoleSpec) -> dict[str, Any]:
    """Variables that the overlay sets on the engine's container."""
    spec = role.pod_template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    own = (
        container
        for container in (containers if isinstance(containers, list) else [])
        if isinstance(container, Mapping) and container.get("name") == names.ENGINE_CONTAINER
    )
    entries = (entry for container in own for entry in _maps(container.get("env")))
    return {str(entry.get("name")): entry.get("value", entry.get("valueFrom")) for entry in entries}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
