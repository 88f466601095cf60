"""The tensors that one rank holds, as vLLM merges and shards them.

Tests: tests/memory/weights/test_weights.py
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import lru_cache

from pdinference.memory.figures import ceil_div
from pdinference.memory.model.quantization import Quantization
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings
from pdinference.memory.weights.attention import attention
from pdinference.memory.weights.feed_forward import feed_forward
from pdinference.memory.weights.linear import Tensor, linear, plain
from pdinference.memory.weights.modules import all_modules
from pdinference.memory.weights.state_layers import state_layer

_MOST_KINDS = 100
_SHARED_PROJECTION = frozenset(
    {"exaone4_5", "exaone_moe", "nemotron_h", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"}
)
"""Types whose ranks share the projection of MTP."""
_DENSE_MTP = frozenset({"ernie4_5_moe", "mimo_v2", "mimo_v2_flash"})
"""Types with experts whose layer of MTP has none."""
_WITHOUT_LAST_NORM = frozenset({"ernie4_5_moe"})
"""Types whose layer of MTP has no norm at its end."""
_VOCAB_PADDING = 64  # DEFAULT_VOCAB_PADDING_SIZE in vllm/model_executor/layers/vocab_parallel_embedding.py


def stage_layers(settings: Settings, stage: int) -> range:
    """The layers of a pipeline stage."""
    first = sum(settings.layer_partition[:stage])
    return range(first, first + settings.layer_partition[stage])


def stage_tensors(facts: ModelFacts, settings: Settings, stage: int) -> Iterator[Tensor]:
    """The tensors of one tensor-parallel rank of a pipeline stage.

    Source: vllm/model_executor/models/{llama,qwen2,qwen3,mixtral,gemma2,gemma3,deepseek_v2}.py. Column-parallel layers
    (qkv, gate_up) shard their outputs, row-parallel ones (o, down) their inputs, embedding and head the vocabulary;
    norms, routers and MLA's down-projections are on every rank. The last stage needs the embedding too when it is tied
    to the head. Some classes (chatglm.py, falcon.py) do not leave out what a stage does not use.
    """
    first, last = stage == 0, stage == settings.stages - 1
    everywhere = facts.on_all_stages
    table = table_rows(facts.vocab, settings) * facts.hidden
    if first or "embedding" in everywhere:
        yield from _inputs(facts, settings)
    if first or "embedding" in everywhere or (last and facts.tied_embeddings):
        yield plain(settings, "embedding", table)
    yield from layer_tensors(facts, settings, stage_layers(settings, stage))
    if last:
        yield from _proposing(facts, settings)
    if last or "norm" in everywhere:
        yield plain(settings, "norm", facts.norm_elements)
    if last or "head" in everywhere:
        yield from _head(facts, settings, table)
    if facts.tower is not None and settings.encodes:
        yield plain(settings, "vision", facts.tower.elements(settings.tensor))


def layer_tensors(facts: ModelFacts, settings: Settings, layers: range) -> Iterator[Tensor]:
    """The tensors of some layers on one rank."""
    for layer, count in _alike(facts, settings.quantization, layers):
        for tensor in _layer(facts, settings, layer):
            yield replace(tensor, count=count * tensor.count)


def _head(facts: ModelFacts, settings: Settings, table: int) -> Iterator[Tensor]:
    if not facts.tied_embeddings:
        yield plain(settings, "head", table)
    if facts.head_bias:
        yield plain(settings, "head", table // facts.hidden)


def _proposing(facts: ModelFacts, settings: Settings) -> Iterator[Tensor]:
    """Layers of MTP: like one of the model, with a projection of two hidden states and norms of them.

    Embedding and head are those of the model. Source: vllm/model_executor/models/*_mtp.py.
    """
    if not settings.mtp_layers:
        return
    like = replace(facts, moe=None) if facts.model_type in _DENSE_MTP else facts
    for layer in _like_mtp(facts):
        for tensor in _layer(like, settings, layer):
            yield replace(tensor, count=settings.mtp_layers * tensor.count)
    ranks = settings.tensor if facts.model_type in _SHARED_PROJECTION else 1
    yield plain(settings, "mtp", settings.mtp_layers * 2 * facts.hidden * facts.hidden // ranks)
    norms = 2 if facts.model_type in _WITHOUT_LAST_NORM else 3
    yield plain(settings, "mtp", norms * settings.mtp_layers * facts.norm_elements)


def _like_mtp(facts: ModelFacts) -> tuple[int, ...]:
    """The layers of the model that one of MTP is like; where a layer has one part alone, one of each part."""
    attends = facts.mtp_attention
    return (attends,) if attends in facts.feed_forward else (attends, *sorted(facts.feed_forward)[-1:])


def table_rows(vocab: int, settings: Settings) -> int:
    """Rows of an embedding on one rank."""
    return ceil_div(vocab, _VOCAB_PADDING) * _VOCAB_PADDING // settings.tensor


def _inputs(facts: ModelFacts, settings: Settings) -> Iterator[Tensor]:
    """What the first layer takes beside the embedding."""
    if facts.position_elements:
        yield plain(settings, "embedding", facts.position_elements)
    if facts.embedding_norm:
        yield plain(settings, "norm", facts.norm_elements)
    if (own := facts.per_layer_input) is not None:
        width = own.width * facts.layers
        yield plain(settings, "embedding", table_rows(own.vocab, settings) * width)
        yield plain(settings, "embedding", width // settings.tensor * facts.hidden)
        yield plain(settings, "norm", own.width)


@lru_cache(maxsize=8)  # every variant of a plan calls it with the same arguments
def _kinds_of_layers(facts: ModelFacts, quantization: Quantization | None) -> tuple[Hashable, ...]:
    """Of each layer, a mark that is the same for those with the same tensors."""
    state = facts.state.layers if facts.state else frozenset()
    return tuple(
        (
            facts.moe is not None and layer in facts.moe.layers,
            layer in facts.attention,
            layer in state,
            layer in facts.feed_forward,
            layer < facts.own_kv,
            facts.indexer is not None and layer in facts.indexer.layers,
            facts.kv_shape(layer),
            facts.query_heads(layer),
            facts.has_sinks(layer),
            quantization and _skipped(facts, quantization, layer),
        )
        for layer in range(facts.layers)
    )


def _skipped(facts: ModelFacts, quantization: Quantization, layer: int) -> frozenset[str]:
    """The modules of a layer that are not quantised, by their names within the layer."""
    names = (name for name in all_modules(facts, layer) if name in quantization.skipped)
    return frozenset(name.partition(f"layers.{layer}.")[2] for name in names)


@lru_cache(maxsize=8)
def too_many_kinds(facts: ModelFacts, quantization: Quantization | None) -> bool:
    """Whether there are too many kinds of layers for a fast plan; no model has a hundred."""
    return len(set(_kinds_of_layers(facts, quantization))) > _MOST_KINDS


@lru_cache(maxsize=512)
def _alike(facts: ModelFacts, quantization: Quantization | None, layers: range) -> tuple[tuple[int, int], ...]:
    """One layer of each kind, and how many of them there are."""
    kinds, first = _kinds_of_layers(facts, quantization), dict[Hashable, int]()
    for layer in layers:
        first.setdefault(kinds[layer], layer)
    counts = Counter(kinds[layer] for layer in layers)
    return tuple((layer, counts[kind]) for kind, layer in first.items())


def _layer(facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    if layer in facts.attention:
        yield from attention(facts, settings, layer)
    if facts.state is not None and layer in facts.state.layers:
        yield from state_layer(facts, settings, layer)
    if layer in facts.feed_forward:
        yield from feed_forward(facts, settings, layer)
    yield Tensor("norm", (facts.norm_elements * settings.dtype_bytes,), count=facts.norms_per_layer)
    if (own := facts.per_layer_input) is not None:
        yield linear(settings, "mlp", (), own.width, facts.hidden)
        yield linear(settings, "mlp", (), facts.hidden, own.width)
        yield plain(settings, "norm", facts.norm_elements)
