"""The KV cache: bytes of a token, blocks, and how many requests of the longest length fit."""

from dataclasses import dataclass

from pdinference.memory.caches import (
    LayerGroup,
    block_size,
    groups_of,
    layer_token_bytes,
    proposing_token_bytes,
    state_bytes,
)
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings
from pdinference.memory.weights.tensors import stage_layers

__all__ = [
    "Capacity", "LayerGroup", "block_bytes", "block_size", "blocks_per_request", "capacity", "groups_of",
    "largest_length", "layer_token_bytes", "proposing_token_bytes", "request_bytes", "token_bytes",
]  # fmt: skip


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


def token_bytes(facts: ModelFacts, settings: Settings, stage: int) -> int:
    """Bytes that one token takes in all layers of a stage, on one rank, while it is in the window of all of them."""
    own = sum(layer_token_bytes(facts, settings, layer) for layer in stage_layers(settings, stage))
    return own + (sum(proposing_token_bytes(facts, settings)) if stage == settings.stages - 1 else 0)


def request_bytes(facts: ModelFacts, settings: Settings, stage: int) -> int:
    """Bytes of the states that a request has in all layers of a stage, on one rank, whatever its length."""
    layers = facts.state.layers if facts.state else frozenset()
    return state_bytes(facts, settings) * len(layers.intersection(stage_layers(settings, stage)))


def blocks_per_request(groups: tuple[LayerGroup, ...], settings: Settings, length: int) -> int:
    """Blocks that a request of some length holds, over all groups.

    Source: `get_max_concurrency_for_kv_cache_config` in vllm/v1/core/kv_cache_utils.py.
    """
    return sum(group.cache.blocks(settings.in_flight_tokens, length) for group in groups)


def block_bytes(facts: ModelFacts, settings: Settings, stage: int) -> int:
    """Bytes of one block on a rank of a stage: of the group with most of them there.

    Source: `_get_kv_cache_bytes_per_block` in vllm/v1/core/kv_cache_utils.py.
    """
    layers = stage_layers(settings, stage)
    if stage == settings.stages - 1:
        layers = range(layers.start, layers.stop + settings.proposing_layers)
    return max(group.block_bytes(layers) for group in groups_of(facts, settings))


def capacity(groups: tuple[LayerGroup, ...], settings: Settings, blocks: int, length: int) -> Capacity:
    """How much fits into a number of blocks (`get_kv_cache_capacity` in vllm/v1/core/kv_cache_utils.py)."""
    concurrency = blocks / blocks_per_request(groups, settings, length)
    return Capacity(blocks, int(concurrency * length), concurrency)


def largest_length(groups: tuple[LayerGroup, ...], settings: Settings, blocks: int, limit: int) -> int:
    """The longest request, in tokens, that fits alone; at most `limit` (`_estimate_max_model_len_from_groups`)."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if blocks_per_request(groups, settings, middle) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low
