"""The tensors of attention that one rank holds.

Tests: tests/memory/weights/test_weights.py
"""

from collections.abc import Iterator

from pdinference.memory.model.shape import MLA, Indexer, ModelFacts
from pdinference.memory.settings import Settings
from pdinference.memory.weights.linear import Tensor, linear, plain
from pdinference.memory.weights.modules import modules

_KIND = "attention"


def local_kv_heads(kv_heads: int, tensor: int) -> int:
    """KV heads of one rank, replicated where there are fewer than ranks.

    Source: `get_num_kv_heads` in vllm/config/model.py.
    """
    return max(1, kv_heads // tensor)


def attention(facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    """The tensors of one layer's attention."""
    if facts.mla is not None:
        yield from _latent(facts, facts.mla, settings, layer)
        return
    kv_heads, head_dim = facts.kv_shape(layer)
    heads = facts.query_heads(layer) // settings.tensor
    own = layer < facts.own_kv
    keys, values = local_kv_heads(kv_heads, settings.tensor) if own else 0, facts.value_size(layer)
    outputs = heads * (2 if facts.output_gate else 1) * head_dim + keys * (head_dim + values)
    inner = modules(facts, layer, _KIND, "qkv_proj", "q_proj", "k_proj", "v_proj")
    merged = 1 if facts.packed_qkv or not own else 3
    yield linear(settings, _KIND, inner, outputs, facts.hidden, merged=merged)
    yield linear(settings, _KIND, modules(facts, layer, _KIND, "o_proj", "out_proj"), facts.hidden, heads * values)
    if facts.separate_gate:
        gates = heads * (head_dim if facts.separate_gate == "element" else 1)
        yield linear(settings, _KIND, modules(facts, layer, _KIND, "g_proj", "gate_proj"), gates, facts.hidden)
    if facts.qkv_bias:
        yield plain(settings, _KIND, outputs)
    if facts.output_bias:
        yield plain(settings, _KIND, facts.hidden)
    if facts.has_sinks(layer):
        yield plain(settings, _KIND, heads)
    if facts.qk_norm_shared:
        yield plain(settings, "norm", (heads + keys) * head_dim)
    elif facts.qk_norm_elements:
        yield plain(settings, "norm", _norms(facts, head_dim, own=own))


def _norms(facts: ModelFacts, head_dim: int, *, own: bool) -> int:
    """Elements of the norms of queries and keys; a layer without keys of its own has the former alone."""
    if facts.full_head_dim == facts.head_dim and own:
        return facts.qk_norm_elements
    return (2 if own else 1) * head_dim


def _latent(facts: ModelFacts, mla: MLA, settings: Settings, layer: int) -> Iterator[Tensor]:
    """MLA's projections; those into the latent space are whole on every rank (models/deepseek_v2.py).

    A quantised `kv_b_proj` is held once more in the model's dtype, for decode (`process_weights_after_loading` in
    vllm/model_executor/layers/attention/mla_attention.py).
    """
    heads = facts.heads // settings.tensor
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim
    if mla.q_lora_rank is None:
        yield linear(settings, _KIND, modules(facts, layer, _KIND, "q_proj"), heads * mla.qk_head_dim, facts.hidden)
        yield linear(settings, _KIND, modules(facts, layer, _KIND, "kv_a_proj_with_mqa"), latent, facts.hidden)
    else:
        down = modules(facts, layer, _KIND, "fused_qkv_a_proj", "q_a_proj", "kv_a_proj_with_mqa")
        yield linear(settings, _KIND, down, mla.q_lora_rank + latent, facts.hidden, merged=2)
        yield plain(settings, "norm", mla.q_lora_rank)
        yield linear(
            settings, _KIND, modules(facts, layer, _KIND, "q_b_proj"), heads * mla.qk_head_dim, mla.q_lora_rank
        )
        if facts.indexer is not None and layer in facts.indexer.layers:
            yield from _index(facts, facts.indexer, mla.q_lora_rank, settings, layer)
    yield plain(settings, "norm", mla.kv_lora_rank)
    up = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    raised = linear(settings, _KIND, modules(facts, layer, _KIND, "kv_b_proj"), up, mla.kv_lora_rank)
    yield raised
    if raised.is_quantised:
        yield plain(settings, _KIND, up * mla.kv_lora_rank)
    yield linear(settings, _KIND, modules(facts, layer, _KIND, "o_proj"), facts.hidden, heads * mla.v_head_dim)


def _index(facts: ModelFacts, indexer: Indexer, rank: int, settings: Settings, layer: int) -> Iterator[Tensor]:
    """The index of sparse attention, whole on every rank (`Indexer` in models/deepseek_v2.py)."""
    queries = indexer.heads * indexer.head_dim
    yield linear(settings, _KIND, modules(facts, layer, _KIND, "indexer.wq_b"), queries, rank)
    yield plain(settings, _KIND, (indexer.head_dim + indexer.heads) * facts.hidden)
    yield Tensor("norm", (2 * indexer.head_dim * 4,))
