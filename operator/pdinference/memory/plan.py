"""The memory plan of one role: every number of one device, for each pipeline stage."""

import math
from dataclasses import dataclass

from pdinference.api.names import Role
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import Spec
from pdinference.memory import kv, ways_out
from pdinference.memory.activations import activations, overhead, unsure
from pdinference.memory.figures import GIB, Figure, computed, derived, measured, unknown
from pdinference.memory.gpus import smallest_gpu_memory
from pdinference.memory.kv_figures import state_bytes, token_bytes, tokens_note
from pdinference.memory.model.config import Config
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import KV_SPACE, Settings, settings_of, stated_kv_cache
from pdinference.memory.split import split_problems
from pdinference.memory.tiers import tier_tokens
from pdinference.memory.weights.checkpoint import KnownWeights
from pdinference.memory.weights.on_device import weights

_NOTHING_KEPT = "No layer of a pipeline stage has a KV cache."
_LOWER = "Lower end: CUDA graphs that newer vLLM subtracts as well, and the spread of logged starts (docs/memory.md)."
_UPPER = "Upper end: the compiled model comes from a cache, and the spread of logged starts (docs/memory.md)."
NO_LENGTH = f"The longest request is not known. {ways_out.LENGTH}"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a plan.

    Attributes:
        memory: Bytes of one device as the user states them; None: from the table of products.
        checkpoint: Known size of the weights; None if it must be computed.
        draft: config.json of the draft of speculative decoding; None: as the spec states it, if it does.
    """

    spec: Spec
    facts: ModelFacts
    checkpoint: KnownWeights | None = None
    memory: Figure | None = None
    draft: Config | None = None


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One device of a pipeline stage. All sizes are bytes.

    Attributes:
        requested: Memory that vLLM may use: memory x utilization.
        kv_cache: The part of it that is left for the KV cache.
        blocks: Blocks that fit there.
        state_bytes: States of one request, whatever its length; None where no layer of the model keeps one.
        fewest_blocks: Blocks at the lower end of what starts of vLLM leave.
        most_blocks: Blocks at the upper end.
    """

    layers: int
    weights: Figure
    activations: Figure
    overhead: Figure
    kv_bytes_per_token: Figure
    requested: Figure
    kv_cache: Figure
    blocks: Figure
    state_bytes: Figure | None
    fewest_blocks: Figure
    most_blocks: Figure

    def as_json(self) -> dict[str, object]:
        """The sizes in bytes, each as `{value, source, note}`."""
        return {
            "weightsBytes": self.weights.as_json(),
            "activationBytes": self.activations.as_json(),
            "overheadBytes": self.overhead.as_json(),
            "kvBytesPerToken": self.kv_bytes_per_token.as_json(),
            "kvCacheBytes": self.kv_cache.as_json(),
            **({"stateBytesPerRequest": self.state_bytes.as_json()} if self.state_bytes else {}),
        }


@dataclass(frozen=True, slots=True)
class RolePlan:
    """One device of a role; of several stages, the numbers of the one that limits.

    Attributes:
        memory: Bytes of the device.
        worst: Index of the stage with fewest blocks, or most weights where blocks are not known.
        tokens: KV cache size as logged by vLLM.
        fewest_blocks: Blocks at the lower end of what starts of vLLM leave; whether the model fits is judged by it.
        fewest_tokens: Tokens there.
        most_tokens: Tokens at the upper end.
        concurrency: Requests of the longest length at once.
        largest_length: Longest request that would fit alone, within the model's own limit.
        tiers: Tokens in each tier of the KV cache behind the device's memory.
    """

    settings: Settings
    facts: ModelFacts
    memory: Figure
    stages: tuple[StagePlan, ...]
    worst: int
    blocks: Figure
    tokens: Figure
    concurrency: Figure
    largest_length: Figure
    tiers: dict[str, Figure]
    fewest_blocks: Figure
    fewest_tokens: Figure
    most_tokens: Figure

    @property
    def stage(self) -> StagePlan:
        """The stage that limits."""
        return self.stages[self.worst]

    def as_json(self) -> dict[str, object]:
        """Every number as `{value, source, note}`, sizes in bytes; of several stages, also each one's own."""
        stage = self.stage
        return {
            "memoryBytes": self.memory.as_json(),
            "requestedBytes": stage.requested.as_json(),
            **stage.as_json(),
            "kvBlocks": self.blocks.as_json(),
            "kvCapacityTokens": self.tokens.as_json(),
            "fewestKvTokens": self.fewest_tokens.as_json(),
            "mostKvTokens": self.most_tokens.as_json(),
            "maxConcurrency": self.concurrency.as_json(),
            "largestLength": self.largest_length.as_json(),
            "tierCapacityTokens": {name: tokens.as_json() for name, tokens in self.tiers.items()},
            "stages": [{"layers": each.layers, **each.as_json()} for each in self.stages],
        }


class UnusableSpecError(ValueError):
    """Model and spec are incompatible; the message says why."""


def stated_memory(size: int, where: str = "--memory") -> Figure:
    """The memory of a device as the user states it.

    Args:
        size: Bytes.
        where: The field or option that states it.
    """
    return measured(size, f"{where}: {size / GIB:g} GiB, as stated.")


def device_memory(spec: Spec, role: Role, rank: int | None = None) -> Figure:
    """Bytes of one device, as the spec states it or as the smallest of the products has.

    Args:
        spec: The spec.
        role: The role.
        rank: Of a node of an instance, whose products count; None for those of all nodes.
    """
    accelerator = spec.of(role).accelerator
    if accelerator.memory is not None:
        return stated_memory(int(quantity(accelerator.memory) or 0), "accelerator.memory")
    if accelerator.type == "CPU":
        if stated_kv_cache(spec, role) is not None:
            return unknown(f"The KV cache has its stated size; the node's memory is not known. {ways_out.NODE_MEMORY}")
        return unknown(f"The node's memory is not known. {ways_out.CPU_MEMORY}")
    if accelerator.is_slice:
        return unknown(f"{accelerator.requested} has a part of a GPU's memory. {ways_out.SLICE}")
    return smallest_gpu_memory(spec.products(role) if rank is None else spec.of(role, rank).accelerator.products)


def plan_role(inputs: Inputs, role: Role) -> RolePlan:
    """Plan one role of a resource.

    Raises:
        UnusableSpecError: The model cannot be split as in the spec.
    """
    if problem := next(split_problems(inputs.spec, role, inputs.facts), None):
        raise UnusableSpecError(str(problem))
    memory = inputs.memory or device_memory(inputs.spec, role)
    architecture = inputs.spec.model.architecture
    draft = inputs.draft or (architecture.draft_config if architecture else None)
    settings = settings_of(inputs.spec, role, inputs.facts, memory, draft)
    return plan_settings(inputs, settings, memory)


def plan_settings(inputs: Inputs, settings: Settings, memory: Figure) -> RolePlan:
    """Plan for settings that may differ from the spec's."""
    facts = inputs.facts
    groups = kv.groups_of(facts, settings)
    stages = tuple(_stage(inputs, settings, memory, stage) for stage in range(settings.stages))
    blocks = _of_all(*(stage.blocks for stage in stages))
    fewest, most = (_of_all(*each) for each in zip(*((s.fewest_blocks, s.most_blocks) for s in stages), strict=True))
    length = (
        computed(settings.max_length, f"at most {settings.max_length:,} tokens, as maxModelLength says")
        if settings.max_length
        else unknown(NO_LENGTH)
    )
    per_request = f"{settings.max_length:,} tokens" if settings.max_length else "the longest length"

    def held(count: float, longest: float) -> kv.Capacity:
        return kv.capacity(groups, settings, int(count), int(longest))

    limit = computed(facts.max_length, f"the model ends at {facts.max_length:,} tokens") if facts.max_length else length
    return RolePlan(
        settings=settings,
        facts=facts,
        memory=memory,
        stages=stages,
        worst=_worst(stages),
        blocks=blocks,
        tokens=derived(lambda c, n: held(c, n).tokens, tokens_note(groups, settings), blocks, length),
        concurrency=derived(lambda c, n: round(held(c, n).concurrency, 2), f"Requests of {per_request} at once.",
                            blocks, length),
        largest_length=derived(lambda c, n: kv.largest_length(groups, settings, int(c), int(n)),
                               f"Longest request that fits alone, at the lower end; {limit.note}.", fewest, limit),
        tiers=tier_tokens(facts, settings, stages[0].kv_bytes_per_token),
        fewest_blocks=fewest,
        fewest_tokens=derived(lambda c, n: held(c, n).tokens, _LOWER, fewest, length),
        most_tokens=derived(lambda c, n: held(c, n).tokens, _UPPER, most, length),
    )  # fmt: skip


def _stage(inputs: Inputs, settings: Settings, memory: Figure, stage: int) -> StagePlan:
    facts = inputs.facts
    held = weights(facts, settings, stage, inputs.checkpoint)
    active, other = activations(facts, settings, stage), overhead(facts, settings, stage)
    requested = derived(
        # `request_memory` in vllm/v1/worker/utils.py
        lambda size: math.ceil(size * settings.utilization),
        f"{settings.utilization:g} of the device.",
        memory,
    )
    per_token = token_bytes(facts, settings, stage)
    cache = _kv_cache(settings, requested, held, active, other)
    size = kv.block_bytes(facts, settings, stage)
    blocks = derived(
        lambda left, _: max(0, int(left) // size),
        f"Whole blocks of {kv.block_size(facts, settings)} tokens.",
        cache,
        per_token if size else unknown(_NOTHING_KEPT),
    )
    state = state_bytes(facts, settings, stage)
    fewer, more = (extra // size if size else 0 for extra in unsure(facts, settings, stage))
    return StagePlan(
        settings.layer_partition[stage], held, active, other, per_token, requested, cache, blocks, state,
        fewest_blocks=derived(lambda count: max(0, count - fewer), _LOWER, blocks),
        most_blocks=derived(lambda count: count + more, _UPPER, blocks),
    )  # fmt: skip


def _of_all(*blocks: Figure) -> Figure:
    """Blocks of the stage with fewest."""
    return blocks[0] if len(blocks) == 1 else derived(lambda *n: min(n), "Of the stage with fewest.", *blocks)


def _kv_cache(settings: Settings, requested: Figure, *used: Figure) -> Figure:
    """Bytes left for the KV cache (`determine_available_memory` in vllm/v1/worker/{gpu_worker,cpu_worker}.py)."""
    if settings.kv_budget is not None:
        where = f"{KV_SPACE} or kv-cache-memory-bytes" if settings.cpu else "kv-cache-memory-bytes"
        return computed(settings.kv_budget, f"{settings.kv_budget / GIB:g} GiB, stated in the spec ({where}).")
    return derived(
        lambda budget, *parts: budget - sum(parts), "What weights, activations and overhead leave.", requested, *used
    )


def _worst(stages: tuple[StagePlan, ...]) -> int:
    def order(index: int) -> tuple[float, float]:
        stage = stages[index]
        return (math.inf if stage.blocks.value is None else stage.blocks.value, -(stage.weights.value or 0))

    return min(range(len(stages)), key=order)
