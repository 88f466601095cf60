"""The KV cache: bytes of a token, blocks, and how many requests of the longest length fit."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from pdinference.planning.memory.figures import ceil_div
from pdinference.planning.memory.model.shape import ModelFacts
from pdinference.planning.memory.settings import Settings
from pdinference.planning.memory.weights.tensors import local_kv_heads, stage_layers


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share one block table.

    Attributes:
        layers: Their indexes in the model.
        window: Tokens of their sliding window; None when they attend to everything.
    """

    layers: tuple[int, ...]
    window: int | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of the KV cache.

    Attributes:
        blocks: Number of blocks.
        tokens: KV cache size as logged by vLLM: concurrency x maximum length.
        concurrency: How many requests of the longest length fit at once.
    """

    blocks: int
    tokens: int
    concurrency: float


def layer_token_bytes(facts: ModelFacts, settings: Settings) -> int:
    """Bytes that one token takes in one layer, on one rank.

    Source: `AttentionSpec.page_size_bytes` in vllm/v1/kv_cache_interface.py: KV heads x 2 x head size x bytes. For MLA,
    `MLAAttention.get_kv_cache_spec`: one latent vector of kv_lora_rank + qk_rope_head_dim, whole on every rank
    (arXiv 2405.04434).
    """
    if facts.mla is not None:
        return (facts.mla.kv_lora_rank + facts.mla.qk_rope_head_dim) * settings.kv_bytes
    return local_kv_heads(facts, settings.tensor) * 2 * facts.head_dim * settings.kv_bytes


def token_bytes(facts: ModelFacts, settings: Settings, stage: int) -> int:
    """Bytes that one token takes in all layers of a stage, on one rank, while it is in the window of all of them."""
    return layer_token_bytes(facts, settings) * len(stage_layers(settings, stage))


@lru_cache(maxsize=8)  # every variant of a plan calls it with the same arguments
def groups_of(windows: tuple[int | None, ...]) -> tuple[Group, ...]:
    """Layers by block table.

    Source: `get_kv_cache_groups` and `_get_kv_cache_groups_uniform_page_size` in vllm/v1/core/kv_cache_utils.py: layers
    with the same window go together, and each kind is cut into groups of as many layers as the rarest kind has (or the
    most frequent one, when it has less than 1.5 times as many).
    """
    kinds: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        kinds.setdefault(window, []).append(layer)
    counts = [len(layers) for layers in kinds.values()]
    size = max(counts) if max(counts) < min(counts) * 1.5 else min(counts)
    groups = []
    for window, layers in kinds.items():
        number = ceil_div(len(layers), size)
        groups += [Group(tuple(layers[i::number]), window) for i in range(number)]
    return tuple(groups)


def blocks_per_request(groups: tuple[Group, ...], settings: Settings, length: int) -> int:
    """Blocks that a request of some length holds, over all groups.

    Source: `get_max_concurrency_for_kv_cache_config` in vllm/v1/core/kv_cache_utils.py, and
    `FullAttentionSpec.max_memory_usage_bytes` and `SlidingWindowSpec.max_admission_blocks_per_request` in
    vllm/v1/kv_cache_interface.py: a window also holds the tokens of the steps under way, and one block more because it
    need not begin with a block.
    """
    return _blocks(Counter(group.window for group in groups), settings, length)


def _blocks(windows: Mapping[int | None, int], settings: Settings, length: int) -> int:
    """The same, from the number of groups with each window."""
    blocks = 0
    for window, count in windows.items():
        if window is None:
            blocks += count * ceil_div(length, settings.block_size)
        else:
            held = min(window - 1 + settings.in_flight_tokens, length)
            blocks += count * (ceil_div(held, settings.block_size) + 1)
    return blocks


def block_bytes(facts: ModelFacts, settings: Settings, stage: int) -> int:
    """Bytes of one block on a rank of a stage: of the group with most layers there.

    Source: `_get_kv_cache_bytes_per_block` in vllm/v1/core/kv_cache_utils.py.
    """
    most = _most_layers(facts.windows, settings.layer_partition)[stage]
    return most * layer_token_bytes(facts, settings) * settings.block_size


@lru_cache(maxsize=8)
def _most_layers(windows: tuple[int | None, ...], partition: tuple[int, ...]) -> tuple[int, ...]:
    """For each stage, the layers of the group that has most there."""
    group_of = {layer: index for index, group in enumerate(groups_of(windows)) for layer in group.layers}
    ends = list(accumulate(partition))
    stages = (range(end - size, end) for end, size in zip(ends, partition, strict=True))
    return tuple(max(Counter(group_of[layer] for layer in stage).values()) for stage in stages)


def capacity(groups: tuple[Group, ...], settings: Settings, blocks: int, length: int) -> Capacity:
    """How much fits into a number of blocks (`get_kv_cache_capacity` in vllm/v1/core/kv_cache_utils.py)."""
    concurrency = blocks / blocks_per_request(groups, settings, length)
    return Capacity(blocks, int(concurrency * length), concurrency)


def largest_length(groups: tuple[Group, ...], settings: Settings, blocks: int, limit: int) -> int:
    """The longest request, in tokens, that fits alone; at most `limit` (`_estimate_max_model_len_from_groups`)."""
    windows = Counter(group.window for group in groups)
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if _blocks(windows, settings, middle) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low
