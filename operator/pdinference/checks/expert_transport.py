"""Whether `expertTransport` can work with the model, the devices and the parallelism of each role.

Tests: tests/checks/test_expert_transport.py
"""

from collections.abc import Iterator
from typing import Final

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.nested import at
from pdinference.api.v1alpha1 import RoleSpec, Spec
from pdinference.api.v1alpha1.expert_transport import (
    ANYWHERE,
    HIGH_THROUGHPUT,
    LOW_LATENCY,
    OPTION,
    RANKS_OF_A_NODE,
    SMALL_STEPS,
    expert_transport,
)
from pdinference.api.validation import Problem
from pdinference.checks.pair import template_containers
from pdinference.checks.stated_twice import stated_twice
from pdinference.memory import ModelFacts
from pdinference.memory.exchange import LARGEST_HIDDEN

_DEEPEP: Final = (HIGH_THROUGHPUT, LOW_LATENCY)
_MAKERS: Final = {
    **dict.fromkeys(_DEEPEP, ("NVIDIA", "AMD")),
    **dict.fromkeys(("mori_high_throughput", "mori_low_latency"), ("AMD",)),
}
"""Whose GPUs a backend is for. All others are for NVIDIA's."""


def expert_transport_problems(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """Backends that vLLM refuses, or cannot have on these devices.

    Args:
        spec: The spec.
        facts: The model; None if it is not known.
    """
    fields = {role: _field(spec, role) for role in spec.engine_roles}
    stated = {role: field for role, field in fields.items() if field}
    if not stated:
        return
    for role, field in stated.items():
        yield from stated_twice(spec, field, [OPTION], roles=[role])
    if not any(spec.of(role).parallelism.exchanges_tokens for role in spec.engine_roles):
        yield Problem(
            next(iter(stated.values())),
            "No role sends tokens to experts of other ranks. Set parallelism.expert with data above 1, or remove this "
            "field.",
        )
    for role, field in stated.items():
        yield from _unfit(spec, role, field, facts)


def expert_transport_warnings(spec: Spec) -> Iterator[Problem]:
    """Backends between nodes, which need more rights than the pods have."""
    for role in spec.engine_roles:
        own, backend, field = spec.of(role), expert_transport(spec, role), _field(spec, role)
        between_nodes = own.parallelism.nodes > 1 and backend not in (None, ANYWHERE)
        if between_nodes and not any(_unfit(spec, role, field, None)) and not _adds_capabilities(own):
            yield Problem(
                field,
                f"{backend} between nodes mostly needs packages in the image, and capabilities such as IPC_LOCK, which "
                f"the chart value policy.capabilities has to allow. Add them in spec.{role}.podTemplate "
                f"(docs/large-models.md), or use {ANYWHERE}.",
            )


def _field(spec: Spec, role: Role) -> str:
    """Where the backend of a role is set; empty if nowhere."""
    if spec.of(role).expert_transport:
        return f"spec.{role}.expertTransport"
    return "spec.engine.expertTransport" if spec.engine.expert_transport else ""


def _unfit(spec: Spec, role: Role, field: str, facts: ModelFacts | None) -> Iterator[Problem]:
    backend = expert_transport(spec, role)
    if backend is not None and backend != ANYWHERE:
        yield from _of_devices(spec, role, backend, field)
        yield from _of_model(spec, role, backend, field, facts)


def _of_devices(spec: Spec, role: Role, backend: str, field: str) -> Iterator[Problem]:
    own = spec.of(role)
    maker, fitting = own.accelerator.maker, _MAKERS.get(backend, ("NVIDIA",))
    if own.accelerator.type == "CPU":
        yield Problem(field, f"{backend} needs GPUs, and spec.{role} has CPUs. Use {ANYWHERE}, or remove the field.")
    elif maker != "unknown" and maker not in fitting:
        makers = " and ".join(f"{one}'s" for one in fitting)
        yield Problem(
            field,
            f"{backend} is for {makers} GPUs, and spec.{role}.accelerator requests {own.accelerator.requested}. Use "
            "another value, such as auto.",
        )
    elif backend in _DEEPEP and own.parallelism.nodes > 1 and own.parallelism.devices_per_pod != RANKS_OF_A_NODE:
        yield Problem(
            field,
            f"{backend} needs {RANKS_OF_A_NODE} devices on each node of an instance, and spec.{role}.parallelism makes "
            f"{own.parallelism.devices_per_pod}. Use another value, or {RANKS_OF_A_NODE} devices on each node.",
        )


def _of_model(spec: Spec, role: Role, backend: str, field: str, facts: ModelFacts | None) -> Iterator[Problem]:
    if spec.model.lora is not None:
        yield Problem(field, f"vLLM computes LoRA adapters of experts with {ANYWHERE} alone. Remove the field.")
    if facts is None or facts.moe is None:
        return
    if backend in SMALL_STEPS and facts.hidden > LARGEST_HIDDEN:
        yield Problem(
            field,
            f"{backend} takes hidden sizes of up to {LARGEST_HIDDEN:,}, and the model has {facts.hidden:,}. Use "
            "another value.",
        )
    balance, split = spec.engine.expert_balance, spec.of(role).parallelism
    experts, devices = facts.moe.experts + (balance.redundant if balance else 0), split.expert_devices
    if backend in _DEEPEP and experts % devices:
        yield Problem(
            field,
            f"{backend} needs as many experts on each device, and {experts} are no multiple of the {devices} devices "
            f"of spec.{role}.parallelism. Use another value, or other sizes.",
        )


def _adds_capabilities(role: RoleSpec) -> bool:
    """Whether podTemplate adds capabilities to vLLM's container."""
    for _, container in template_containers(role):
        added = at(container, "securityContext", "capabilities", "add")
        if container.get("name") == names.ENGINE_CONTAINER and isinstance(added, list) and added:
            return True
    return False
