"""What the layers of a model keep of a request, and how vLLM puts layers into groups with a block table each.

Tests: tests/memory/test_kv.py, tests/memory/test_newer.py
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from pdinference.memory.figures import ceil_div
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import DTYPE_BYTES, Settings
from pdinference.memory.weights.attention import local_kv_heads

_LATENT_BLOCK = 128
"""Blocks of MLA beside states are a multiple of it (`_align_hybrid_block_size` in vllm/platforms/interface.py)."""


@dataclass(frozen=True, slots=True)
class Cache:
    """What a layer keeps of a request.

    Attributes:
        page: Bytes of a block in this layer.
        block: Tokens of a block; of a state, which has none, 0.
        window: Tokens of its sliding window; None where it keeps all.
        chunked: Whether the window is a chunk, which begins at a multiple of its size.
        states: Blocks that its state takes, whatever the length; 0 where it keeps tokens.
    """

    page: int
    block: int
    window: int | None = None
    chunked: bool = False
    states: int = 0

    def blocks(self, in_flight: int, length: int) -> int:
        """Blocks that a request of some length holds.

        Source: `max_memory_usage_bytes` of the classes of vllm/v1/kv_cache_interface.py: a window also holds the tokens
        of the steps under way, and unless it is a chunk, one block more because it need not begin with a block.
        """
        if self.states:
            return self.states
        if self.window is None:
            return ceil_div(length, self.block)
        held = min(self.window - (0 if self.chunked else 1) + in_flight, length)
        return ceil_div(held, self.block) + (0 if self.chunked else 1)


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that share one block table.

    Attributes:
        layers: Their indexes in the model.
        pages: Bytes of a block in each of them.
        cache: What each of them keeps.
    """

    layers: tuple[int, ...]
    pages: tuple[int, ...]
    cache: Cache

    def block_bytes(self, layers: range) -> int:
        """Bytes of a block in those of the group's layers that a pipeline stage has."""
        return sum(page for layer, page in zip(self.layers, self.pages, strict=True) if layer in layers)


def layer_token_bytes(facts: ModelFacts, settings: Settings, layer: int) -> int:
    """Bytes that one token takes in the KV cache of a layer, on one rank; 0 where it has none of its own.

    Source: `AttentionSpec.page_size_bytes` in vllm/v1/kv_cache_interface.py: KV heads x 2 x head size x bytes. For MLA,
    `MLAAttention.get_kv_cache_spec`: one latent vector of kv_lora_rank + qk_rope_head_dim, whole on every rank
    (arXiv 2405.04434), and with sparse attention the key of the index.
    """
    if layer not in facts.attention or layer >= facts.own_kv:
        return 0
    if facts.mla is not None:
        latent = (facts.mla.kv_lora_rank + facts.mla.qk_rope_head_dim) * settings.kv_bytes
        indexed = facts.indexer is not None and layer in facts.indexer.layers
        return latent + (facts.indexer.token_bytes if facts.indexer and indexed else 0)
    kv_heads, head_dim = facts.kv_shape(layer)
    return local_kv_heads(kv_heads, settings.tensor) * (head_dim + facts.value_size(layer)) * settings.kv_bytes


def state_bytes(facts: ModelFacts, settings: Settings) -> int:
    """Bytes of one layer's state of one request, on one rank (`MambaSpec.page_size_bytes`)."""
    if facts.state is None:
        return 0
    accumulated = settings.state_bytes or DTYPE_BYTES.get(facts.state_dtype, settings.dtype_bytes)
    state, tensor = facts.state, settings.tensor
    return state.recent(tensor) * settings.dtype_bytes + state.accumulated(tensor) * accumulated


def block_size(facts: ModelFacts, settings: Settings) -> int:
    """Tokens of a block of attention; beside states it is so large that a block holds a state.

    Source: `_align_hybrid_block_size` in vllm/platforms/interface.py.
    """
    token = max((layer_token_bytes(facts, settings, layer) for layer in facts.attention), default=0)
    if facts.state is None or token == 0:
        return settings.block_size
    step = max(settings.block_size, _LATENT_BLOCK) if facts.mla is not None else settings.block_size
    return max(settings.block_size, ceil_div(state_bytes(facts, settings), step * token) * step)


@lru_cache(maxsize=64)  # every stage and variant of a plan calls it with the same arguments
def groups_of(facts: ModelFacts, settings: Settings) -> tuple[LayerGroup, ...]:
    """Layers by block table.

    Source: `get_kv_cache_groups` in vllm/v1/core/kv_cache_utils.py, for layouts in which the layer is the outermost
    dimension. Layers that need the same tokens are one group, even with blocks of different sizes. Otherwise blocks are
    made equal (`unify_kv_cache_spec_page_size`), layers that keep the same go together, and each kind is cut into
    groups of as many layers as the rarest kind has (or the most frequent one, when it has less than 1.5 times as many).
    """
    caches = tuple(_caches(facts, settings))
    if len({replace(cache, page=0) for _, cache in caches}) == 1 and not caches[0][1].states:
        layers, pages = tuple(layer for layer, _ in caches), tuple(cache.page for _, cache in caches)
        return (LayerGroup(layers, pages, caches[0][1]),)
    kinds: dict[Cache, list[int]] = {}
    for layer, cache in _unified(caches):
        kinds.setdefault(cache, []).append(layer)
    counts = [len(layers) for layers in kinds.values()]
    size = max(counts) if max(counts) < min(counts) * 1.5 else min(counts)
    return tuple(
        LayerGroup(part, (cache.page,) * len(part), cache)
        for cache, layers in kinds.items()
        for part in _cut(layers, ceil_div(len(layers), size))
    )


def _cut(layers: list[int], number: int) -> Iterator[tuple[int, ...]]:
    return (tuple(layers[first::number]) for first in range(number))


def _caches(facts: ModelFacts, settings: Settings) -> Iterator[tuple[int, Cache]]:
    """What each layer keeps; a layer may have both, attention and a state."""
    block = block_size(facts, settings)
    state = state_bytes(facts, settings)
    for layer in range(facts.layers):
        if token := layer_token_bytes(facts, settings, layer):
            yield layer, Cache(token * block, block, facts.windows[layer], facts.chunked)
        if facts.state is not None and layer in facts.state.layers:
            yield layer, Cache(state, 0, states=_states(facts, settings))
    windows, chunked = _proposing_windows(facts, settings)
    for index, token in enumerate(proposing_token_bytes(facts, settings)):
        if token:
            yield facts.layers + index, Cache(token * block, block, windows[index], chunked)


def proposing_token_bytes(facts: ModelFacts, settings: Settings) -> tuple[int, ...]:
    """Bytes that one token takes in each layer that proposes tokens, on one rank of the last stage."""
    if settings.draft is None:
        return (layer_token_bytes(facts, settings, facts.mtp_attention),) * settings.mtp_layers
    own = settings.draft.facts
    return tuple(layer_token_bytes(own, settings, layer) for layer in range(own.layers)) if own else ()


def _proposing_windows(facts: ModelFacts, settings: Settings) -> tuple[tuple[int | None, ...], bool]:
    """The windows of these layers, and whether they are chunks."""
    if settings.draft is None:
        return (facts.windows[facts.mtp_attention],) * settings.mtp_layers, facts.chunked
    own = settings.draft.facts
    return (own.windows, own.chunked) if own else ((), False)


def _states(facts: ModelFacts, settings: Settings) -> int:
    """Blocks of a request's state: with prefix caching, the one before is kept too, and one for a prompt's end.

    Source: `MambaSpec.max_memory_usage_bytes` in vllm/v1/kv_cache_interface.py.
    """
    kept = 2 + facts.state.checkpoints if settings.prefix_caching and facts.state else 1
    return kept + settings.speculated  # a state for each proposed token (`num_speculative_blocks`)


def _unified(caches: tuple[tuple[int, Cache], ...]) -> Iterator[tuple[int, Cache]]:
    """The same with blocks of equal size: longer ones, or where that does not do, padded ones."""
    largest = max(cache.page for _, cache in caches)
    for layer, cache in caches:
        times, rest = divmod(largest, cache.page)
        block = cache.block if rest or cache.states else cache.block * times
        yield layer, replace(cache, page=largest, block=block)
