"""Variants of a plan with one setting changed.

Tests: tests/memory/test_plan.py, tests/memory/test_options.py
"""

from dataclasses import dataclass, replace

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.memory import kv
from pdinference.memory.figures import Figure, derived, unknown
from pdinference.memory.plan import NO_LENGTH, Inputs, RolePlan, plan_settings
from pdinference.memory.settings import Settings
from pdinference.memory.split import GPUS_OF_A_HOST, tensor_sizes


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change and the resulting plan.

    Attributes:
        change: Description of the change.
        plan: The plan with it.
    """

    change: str
    plan: RolePlan


def what_if(inputs: Inputs, role: Role, plan: RolePlan) -> tuple[WhatIf, ...]:
    """The changes that most often help.

    FP8 KV cache, two and four times the tensor parallelism if a host has the GPUs, half the length, no CUDA graphs.
    """
    changes = _changes(inputs.spec, role, plan)
    return tuple(WhatIf(change, plan_settings(inputs, settings, plan.memory)) for change, settings in changes)


def one_request(plan: RolePlan) -> Figure:
    """Bytes of the KV cache that one request of the longest length holds on a device."""
    if plan.settings.max_length is None:
        return unknown(NO_LENGTH)
    groups = kv.groups_of(plan.facts, plan.settings)
    blocks = kv.blocks_per_request(groups, plan.settings, plan.settings.max_length)
    size = blocks * kv.block_bytes(plan.facts, plan.settings, plan.worst)
    note = f"{blocks} blocks of {kv.block_size(plan.facts, plan.settings)} tokens."
    return derived(lambda _: size, note, plan.stage.kv_bytes_per_token)


def least_memory(plan: RolePlan) -> Figure:
    """Bytes of a device that vLLM has to be given for one request of the longest length."""
    stage = plan.stage
    return derived(
        lambda *parts: sum(parts),
        "Weights, activations, overhead and the KV cache of one request.",
        stage.weights, stage.activations, stage.overhead, one_request(plan),
    )  # fmt: skip


def fits(plan: RolePlan) -> bool | None:
    """Whether vLLM can start: one request of the longest length has to fit at the lower end. None when unknown."""
    stage, settings = plan.stage, plan.settings
    held = [stage.weights.value]
    if not settings.cpu:  # of a CPU, the others are not known
        held += [stage.activations.value, stage.overhead.value]
    if None not in held:
        budget = plan.memory.value if settings.kv_budget else stage.requested.value
        if budget is not None and sum(filter(None, held)) + (settings.kv_budget or 0) > budget:
            return False
    if plan.fewest_blocks.value is None or settings.max_length is None:
        return None
    groups = kv.groups_of(plan.facts, settings)
    return plan.fewest_blocks.value >= kv.blocks_per_request(groups, settings, settings.max_length)


def _changes(spec: Spec, role: Role, plan: RolePlan) -> list[tuple[str, Settings]]:
    settings, facts = plan.settings, plan.facts
    changes = []
    if settings.kv_bytes > 1:
        changes.append(("engine.kvCache.dtype: fp8", replace(settings, kv_bytes=1)))
    of_a_host = [times for times in (2, 4) if times * spec.devices_per_pod(role) <= GPUS_OF_A_HOST]
    more = [times * settings.tensor for times in of_a_host] if not settings.cpu else []
    changes += [(f"parallelism.tensor: {n}", settings.with_tensor(n)) for n in more if n in tensor_sizes(facts)]
    if settings.max_length and settings.max_length > 1:
        half = settings.max_length // 2
        changes.append((f"model.maxModelLength: {half}", replace(settings, max_length=half)))
    if not settings.cpu and not settings.eager:
        changes.append(("enforceEager: true", replace(settings, eager=True)))
    return changes
