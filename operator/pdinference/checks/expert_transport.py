"""Whether `expertTransport` can work with the model, the devices and the parallelism of each role.

Tests: tests/checks/test_expert_transport.py
"""

from collections.abc import Iterator
from typing import Any, Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import RoleSpec, Spec
from pdinference.api.v1alpha1.expert_transport import OPTION, expert_transport, is_amd
from pdinference.api.validation import Problem
from pdinference.checks.stated_twice import stated_twice
from pdinference.memory import ModelFacts
from pdinference.memory.exchange import LARGEST_HIDDEN, LOW_LATENCY

_ANYWHERE: Final = "allgather_reducescatter"
_OF_AMD: Final = ("mori_high_throughput", "mori_low_latency")
_OF_NVIDIA: Final = ("deepep_v2", "flashinfer_nvlink_one_sided", "flashinfer_nvlink_two_sided", "nixl_ep")
_ENGINE: Final = "vllm"
"""The container whose capabilities count."""


def expert_transport_problems(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """Backends that vLLM refuses, or cannot have on these devices.

    Args:
        spec: The spec.
        facts: The model; None if it is not known.
    """
    stated = _stated(spec)
    if not stated:
        return
    yield from stated_twice(spec, next(iter(stated)), [OPTION])
    if not any(spec.of(role).parallelism.exchanges_tokens for role in spec.engine_roles):
        yield Problem(
            next(iter(stated)),
            "No role sends tokens to experts of other ranks. Set parallelism.expert with data above 1, or remove this "
            "field.",
        )
    for role in spec.engine_roles:
        backend, field = expert_transport(spec, role), _field(spec, role)
        if backend is not None and backend != _ANYWHERE:
            yield from _of_devices(spec.of(role), role, backend, field)
            yield from _of_model(spec, facts, backend, field)


def expert_transport_warnings(spec: Spec) -> Iterator[Problem]:
    """Backends between nodes, which need more rights than the pods have."""
    for role in spec.engine_roles:
        own, backend = spec.of(role), expert_transport(spec, role)
        between_nodes = own.parallelism.nodes > 1 and backend is not None and backend != _ANYWHERE
        if between_nodes and not _adds_capabilities(own.pod_template):
            yield Problem(
                _field(spec, role),
                f"{backend} between nodes mostly needs capabilities such as IPC_LOCK, and packages in the image. Add "
                f"them in spec.{role}.podTemplate (docs/large-models.md), or use {_ANYWHERE}.",
            )


def _stated(spec: Spec) -> dict[str, str]:
    """Where the field is set."""
    parts = {"engine": spec.engine, **{role.value: spec.of(role) for role in spec.engine_roles}}
    found = {f"spec.{name}.expertTransport": part.expert_transport for name, part in parts.items()}
    return {field: value for field, value in found.items() if value is not None}


def _field(spec: Spec, role: Role) -> str:
    return f"spec.{role.value if spec.of(role).expert_transport else 'engine'}.expertTransport"


def _of_devices(own: RoleSpec, role: Role, backend: str, field: str) -> Iterator[Problem]:
    amd = is_amd(own.accelerator)
    if own.accelerator.type == "CPU":
        yield Problem(field, f"{backend} needs GPUs, and spec.{role} has CPUs. Use {_ANYWHERE}, or remove the field.")
    elif (backend in _OF_AMD and not amd) or (backend in _OF_NVIDIA and amd):
        maker, others = ("AMD's", "NVIDIA's") if backend in _OF_AMD else ("NVIDIA's", "AMD's")
        yield Problem(
            field,
            f"{backend} is for {maker} GPUs, and spec.{role}.accelerator requests {others} "
            f"({own.accelerator.resource_name}). Use another value, such as auto.",
        )


def _of_model(spec: Spec, facts: ModelFacts | None, backend: str, field: str) -> Iterator[Problem]:
    if spec.model.lora is not None:
        yield Problem(field, f"vLLM computes LoRA adapters of experts with {_ANYWHERE} alone. Remove the field.")
    if backend == LOW_LATENCY and facts is not None and facts.hidden > LARGEST_HIDDEN:
        yield Problem(
            field,
            f"{backend} takes hidden sizes of up to {LARGEST_HIDDEN:,}, and the model has {facts.hidden:,}. Use "
            "another value.",
        )


def _adds_capabilities(template: dict[str, Any]) -> bool:
    """Whether podTemplate, which may have any form until it is checked, adds capabilities to vLLM's container."""
    for container in _list(_at(template, "spec", "containers")):
        if _at(container, "name") == _ENGINE and _list(_at(container, "securityContext", "capabilities", "add")):
            return True
    return False


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
