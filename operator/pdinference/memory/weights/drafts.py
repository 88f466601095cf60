"""The tensors of a draft of speculative decoding, as one rank of the last pipeline stage holds them.

Tests: tests/memory/model/test_drafts.py
"""

from collections.abc import Iterator
from dataclasses import replace

from pdinference.memory.model.drafts import Draft
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings
from pdinference.memory.weights.attention import local_kv_heads
from pdinference.memory.weights.linear import Tensor, linear, plain
from pdinference.memory.weights.modules import modules
from pdinference.memory.weights.tensors import layer_tensors, stage_tensors, table_rows

_WHOLE_MODEL = "draft_model"


def draft_tensors(draft: Draft, settings: Settings) -> Iterator[Tensor]:
    """The tensors of a draft.

    vLLM splits a draft over the tensor-parallel ranks of its model, whatever `draft_tensor_parallel_size` says, because
    its layers ask for the group of the process (`get_tp_group` in vllm/distributed/parallel_state.py).
    """
    facts = draft.facts
    if facts is not None:
        own = _of_its_own(settings, facts)
        if draft.method == _WHOLE_MODEL:
            yield from stage_tensors(facts, own, 0)
        else:
            yield from layer_tensors(facts, own, range(facts.layers))
            if draft.own_embedding or settings.stages > 1:
                yield plain(own, "embedding", table_rows(facts.vocab, own) * facts.hidden)
            if draft.wide_input:
                yield _second_half(facts, own)
    if draft.whole:
        yield plain(settings, "draft", draft.whole)
    for rows in draft.heads:
        yield plain(settings, "head", table_rows(rows, settings) * draft.hidden)
    if draft.map_bytes:
        yield Tensor("draft", (draft.map_bytes,))


def _of_its_own(settings: Settings, facts: ModelFacts) -> Settings:
    """The settings of a draft: one stage, its own quantisation, and no draft, adapters or copies of experts."""
    return replace(
        settings, layer_partition=(facts.layers,), quantization=facts.quantization, draft=None, mtp_layers=0,
        lora_slots=0, redundant_experts=0,
    )  # fmt: skip


def _second_half(facts: ModelFacts, settings: Settings) -> Tensor:
    """Inputs of the first layer's queries, keys and values beyond those of other layers."""
    if (mla := facts.mla) is not None:
        columns = (mla.q_lora_rank or 0) + mla.kv_lora_rank + mla.qk_rope_head_dim
    else:
        kv_heads, head_dim = facts.kv_shape(0)
        columns = (facts.query_heads(0) // settings.tensor + 2 * local_kv_heads(kv_heads, settings.tensor)) * head_dim
    return linear(settings, "attention", modules(facts, 0, "attention", "qkv_proj"), columns, facts.hidden)
