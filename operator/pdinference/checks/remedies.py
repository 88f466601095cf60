"""Suggests changes that make a model fit, the smallest first. Each one is verified with a memory plan.

Tests: tests/checks/test_memory.py
"""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pdinference.api.names import Role
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.base import ApiModel, broken_rules
from pdinference.api.v1alpha1.defaults import chunked_prefill
from pdinference.api.v1alpha1.expert_transport import ANYWHERE, SMALL_STEP, SMALL_STEPS, expert_transport
from pdinference.checks.model_shape import model_problems
from pdinference.memory import Inputs, RolePlan, UnusableSpecError, fits, least_memory, plan_role, tensor_sizes
from pdinference.memory.comparison.common_gpus import common_products
from pdinference.memory.figures import GIB
from pdinference.memory.split import GPUS_OF_A_HOST

_NAMED = 3
UTILIZATIONS = (0.9, 0.92, 0.94, 0.95)
_BATCHES: tuple[int, ...] = (4096, 2048)
_SMALL_BATCHES: tuple[int, ...] = (SMALL_STEP,)
_TENSORS = (2, 4, 8, 16)
_STAGES = (2, 4, 8)
_MEMORIES = ("16Gi", "24Gi", "40Gi", "48Gi", "80Gi", "96Gi", "141Gi", "192Gi", "288Gi")
_KV_SPACES = (1, 2, 4, 8, 16, 32, 64, 128)
SHORTEST = 256

Change = dict[str, Any]
"""New values by their path within spec."""


def remedies(inputs: Inputs, role: Role, plan: RolePlan) -> list[str]:
    """Up to three changes, each of which is sufficient for the role."""
    fitting = (change for change in _changes(inputs, role, plan) if _helps(inputs, role, change))
    return list(islice(_one_of_a_kind(fitting), _NAMED))


def changed(spec: Spec, change: Change) -> Spec:
    """A spec with some values replaced."""
    for path, value in change.items():
        spec = _replaced(spec, path.split("."), value)
    return spec


def _replaced(part: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    if isinstance(part, dict):
        return {**part, path[0]: value}
    name = _field(part, path[0])
    return part.model_copy(update={name: _replaced(getattr(part, name), path[1:], value)})


def _field(part: ApiModel, alias: str) -> str:
    return next(name for name, field in type(part).model_fields.items() if field.alias == alias)


def planned(inputs: Inputs, role: Role, change: Change) -> RolePlan | None:
    """The memory plan after a change; None if the changed spec is invalid, or a pod needs more GPUs than a host has."""
    spec = changed(inputs.spec, change)
    if any(broken_rules(spec)) or any(model_problems(spec, inputs.facts)):
        return None
    if spec.devices_per_pod(role) > max(GPUS_OF_A_HOST, inputs.spec.devices_per_pod(role)):
        return None
    try:
        return plan_role(Inputs(spec, inputs.facts, inputs.checkpoint, draft=inputs.draft), role)
    except UnusableSpecError:
        return None


def _helps(inputs: Inputs, role: Role, change: Change) -> bool:
    plan = planned(inputs, role, change)
    if plan is None or fits(plan) is not True:
        return False
    # Other products may have another backend: that would be the remedy.
    backend = expert_transport(inputs.spec, role)
    return backend in (None, plan.settings.expert_transport) or f"{role}.expertTransport" in change


def _one_of_a_kind(changes: Iterator[Change]) -> Iterator[str]:
    """Descriptions of the changes, only the first (smallest) of each kind."""
    seen = set()
    for change in changes:
        kind = tuple(change)
        if kind not in seen:
            seen.add(kind)
            yield in_words(change)


def in_words(change: Change) -> str:
    """The fields with their values."""
    first, *others = (f"spec.{path}: {_written(value)}" for path, value in change.items())
    return f"{first} with {' and '.join(others)}" if others else first


def _written(value: Any) -> str:
    return value if isinstance(value, str) and not value.isdigit() else json.dumps(value)


def _changes(inputs: Inputs, role: Role, plan: RolePlan) -> Iterator[Change]:
    spec, settings = inputs.spec, plan.settings
    if settings.cpu:
        yield from ({f"{role}.env.VLLM_CPU_KVCACHE_SPACE": str(size)} for size in _KV_SPACES)
        yield from _shorter(plan, at_least=SHORTEST)
        return
    yield from ({f"{role}.gpuMemoryUtilization": u} for u in UTILIZATIONS if u > settings.utilization)
    batches = _SMALL_BATCHES if settings.expert_transport in SMALL_STEPS else _BATCHES
    if chunked_prefill(spec, role) is False:  # then a step is as long as the longest request
        batches = tuple(n for n in batches if n >= (settings.max_length or n))
        yield {f"{role}.enableChunkedPrefill": True}
    yield from ({f"{role}.maxNumBatchedTokens": n} for n in batches if n < settings.max_num_batched_tokens)
    if expert_transport(spec, role) is not None:
        yield {f"{role}.expertTransport": ANYWHERE}
    if not settings.eager:
        yield {f"{role}.enforceEager": True}
    if settings.kv_bytes > 1:
        yield {"engine.kvCache.dtype": "fp8"}
    yield from _shorter(plan, at_least=(settings.max_length or 0) // 2)
    yield from ({path: size} for path, size in more_ranks(spec, role, plan))
    yield from _both_more_ranks(spec, role, plan)
    if role is Role.PARAMETER:
        yield from _more_stages(settings.stages)
    yield from larger_devices(spec, role)
    if settings.quantization is None:
        yield {"model.quantization": "fp8"}
    yield from _shorter(plan, at_least=SHORTEST)
    yield from _offloads(spec, role, plan)
    yield from _more_ranks_and_shorter(inputs, role, plan)


def _shorter(plan: RolePlan, *, at_least: int) -> Iterator[Change]:
    """The maximum length that fits, rounded down."""
    rounded = rounded_length(int(plan.largest_length.value or 0))
    if rounded >= max(at_least, SHORTEST) and rounded < (plan.settings.max_length or 0):
        yield {"model.maxModelLength": rounded}


def rounded_length(tokens: int) -> int:
    """Round a length down to a multiple of 1024 or 128."""
    return tokens - tokens % (1024 if tokens >= 1024 else 128)


def more_ranks(spec: Spec, role: Role, plan: RolePlan) -> Iterator[tuple[str, int]]:
    """Larger tensor-parallel sizes that are valid for the model."""
    fitting = set(tensor_sizes(plan.facts))
    for size in _TENSORS:
        if size > spec.of(role).parallelism.tensor and size in fitting:
            yield f"{role}.parallelism.tensor", size


def _both_more_ranks(spec: Spec, role: Role, plan: RolePlan) -> Iterator[Change]:
    """A larger tensor-parallel size of both roles, because D must not have fewer ranks than P."""
    if role is Role.PARAMETER:
        for path, size in more_ranks(spec, role, plan):
            if size > spec.decode.parallelism.tensor:
                yield {path: size, "decode.parallelism.tensor": size}


def _more_ranks_and_shorter(inputs: Inputs, role: Role, plan: RolePlan) -> Iterator[Change]:
    """A larger tensor-parallel size, with the maximum length that then fits."""
    larger = [{path: size} for path, size in more_ranks(inputs.spec, role, plan)]
    for change in (*larger, *_both_more_ranks(inputs.spec, role, plan)):
        if (other := planned(inputs, role, change)) is not None:
            yield from ({**change, **shorter} for shorter in _shorter(other, at_least=SHORTEST))


def _more_stages(present: int) -> Iterator[Change]:
    """More pipeline stages: all on one host, or each on a host of its own."""
    stages = [number for number in _STAGES if number > present]
    yield from ({"parameter.parallelism.pipeline": number} for number in stages)
    for number in stages:
        yield {"parameter.parallelism.pipeline": number, "parameter.parallelism.nodes": number}


def larger_devices(spec: Spec, role: Role) -> Iterator[Change]:
    """Products of the same vendor with more memory, or more memory if the spec states it."""
    accelerator = spec.of(role).accelerator
    if accelerator.memory is not None:
        stated = quantity(accelerator.memory) or 0
        yield from ({f"{role}.accelerator.memory": size} for size in _MEMORIES if (quantity(size) or 0) > stated)
    elif accelerator.products:
        yield from ({f"{role}.accelerator.products": [product]} for product in common_products(accelerator))


def _offloads(spec: Spec, role: Role, plan: RolePlan) -> Iterator[Change]:
    """Offloading of the missing memory, rounded up to GiB."""
    least, requested = least_memory(plan).value, plan.stage.requested.value
    if least is None or requested is None:
        return
    present = int(quantity(spec.of(role).cpu_offload or spec.engine.cpu_offload or "0") or 0)
    missing = int((present + least - requested) // GIB) + 1
    yield from ({f"{role}.cpuOffload": f"{size}Gi"} for size in (missing, missing + 1))
