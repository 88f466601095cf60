"""Options and variables that P and D must share. Otherwise vLLM's KV handshake fails, or transfers wrong data.

Model, revision, image, dtype, KV dtype and block size have one field for both roles. The tables here list the other
inputs of `compute_nixl_compatibility_hash` (vllm/distributed/kv_transfer/kv_connector/v1/nixl/metadata.py), and
settings that change the layout of blocks.

Tests: tests/checks/test_examine.py, tests/checks/test_options.py
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.engines import runs_engines
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.nested import at
from pdinference.api.v1alpha1 import RoleSpec, Spec
from pdinference.api.validation import Problem

_SAME_OPTIONS = {
    "attention-backend": "the attention backend decides the layout of the KV cache",
    "attention-config": "the attention backend decides the layout of the KV cache",
    "config-format": "it changes which model is read",
    "disable-hybrid-kv-cache-manager": "it changes the layout of the KV cache",
    "enable-hybrid-kv-cache-manager": "it changes the layout of the KV cache",  # its opposite, since vLLM 0.33
    "no-disable-hybrid-kv-cache-manager": "it changes the layout of the KV cache",
    "hf-config-path": "it changes the shape of the model",
    "hf-overrides": "it changes the shape of the model",
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
    # Measured: UCX closes the connection at the first transfer (benchmarks/results/kv-transfer.md).
    "UCX_TCP_TX_SEG_SIZE": "UCX closes connections between different segment sizes",
    "UCX_TCP_RX_SEG_SIZE": "UCX closes connections between different segment sizes",
}


def pair_problems(spec: Spec) -> Iterator[Problem]:
    """Options and variables that differ between P and D but must be equal."""
    if not spec.transfers_kv:
        return
    options = {role: {**spec.engine.args, **spec.of(role).args} for role in ENGINE_ROLES}
    yield from _differing(_SAME_OPTIONS, options, "args")
    variables = {role: variables_of(spec, role) for role in ENGINE_ROLES}
    yield from _differing(_SAME_VARIABLES, variables, "env")


def variables_of(spec: Spec, role: Role) -> dict[str, Any]:
    """Variables that users set on the vLLM container of a role."""
    return {**spec.engine.env, **spec.of(role).env, **_overlaid(spec.of(role))}


def _differing(same: Mapping[str, str], values: Mapping[Role, Mapping[str, Any]], member: str) -> Iterator[Problem]:
    of_p, of_d = values[Role.PARAMETER], values[Role.DECODE]
    for name, why in same.items():
        if of_p.get(name) != of_d.get(name):
            yield Problem(
                f"spec.decode.{member}.{name}",
                f"{_shown(of_d, name)} for D and {_shown(of_p, name)} for P. They must be equal: {why}. Set it in "
                f"spec.engine.{member} instead.",
            )


def _shown(values: Mapping[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "not set"


def _overlaid(role: RoleSpec) -> dict[str, Any]:
    """Variables that podTemplate sets on the vLLM container."""
    own = (variables for _, name, variables in overlaid_containers(role) if name == names.ENGINE_CONTAINER)
    return {name: value for variables in own for name, value in variables.items()}


def environments(spec: Spec, *, engines_only: bool = False) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Variables of engines and of containers beside them, with the field that sets them.

    Args:
        spec: A valid spec.
        engines_only: Leave out containers of podTemplate that run no engine.
    """
    yield "spec.engine.env", spec.engine.env
    for role in spec.engine_roles:
        own = spec.of(role)
        yield f"spec.{role}.env", own.env
        for index, name, variables in overlaid_containers(own):
            if not engines_only or (isinstance(name, str) and runs_engines(name)):
                yield f"spec.{role}.podTemplate.spec.containers[{index}].env", variables


def overlaid_containers(role: RoleSpec) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """Index, name and variables of each container in podTemplate, which may have any form until it is checked."""
    for index, container in template_containers(role):
        entries = _maps(container.get("env"))
        variables = {str(entry.get("name")): entry.get("value", entry.get("valueFrom")) for entry in entries}
        yield index, container.get("name"), variables


def template_containers(role: RoleSpec) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Index and content of each container in podTemplate, which may have any form until it is checked."""
    containers = at(role.pod_template, "spec", "containers")
    for index, container in enumerate(containers if isinstance(containers, list) else []):
        if isinstance(container, Mapping):
            yield index, container


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
