"""The tensors that one rank holds, as vLLM merges and shards them."""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from pdinference.planning.memory.figures import ceil_div
from pdinference.planning.memory.model.quantization import Quantization
from pdinference.planning.memory.model.shape import MLA, ModelFacts, MoE
from pdinference.planning.memory.settings import Settings

_MODULES = (
    *(f"self_attn.{name}" for name in ("qkv_proj", "q_proj", "k_proj", "v_proj", "o_proj", "kv_a_proj_with_mqa")),
    *(f"self_attn.{name}" for name in ("fused_qkv_a_proj", "q_a_proj", "q_b_proj", "kv_b_proj")),
    *(f"mlp.{name}" for name in ("gate_up_proj", "gate_proj", "up_proj", "down_proj", "experts")),
    *(f"mlp.shared_experts.{name}" for name in ("gate_up_proj", "gate_proj", "up_proj", "down_proj")),
)
"""The linear layers that a layer may have."""
_MOST_KINDS = 100
_VOCAB_PADDING = 64  # DEFAULT_VOCAB_PADDING_SIZE in vllm/model_executor/layers/vocab_parallel_embedding.py


@dataclass(frozen=True, slots=True)
class Tensor:
    """One layer's parameter on one rank.

    Attributes:
        kind: `embedding`, `attention`, `mlp`, `experts`, `norm` or `head`.
        parts: Bytes of each tensor: the weights, and where they are quantised, scales and zero points.
        linear: Output and input elements of a linear layer, for LoRA; None for others.
        merged: How many layers of the checkpoint vLLM merged into it.
        count: How many of them there are.
    """

    kind: str
    parts: tuple[int, ...]
    linear: tuple[int, int] | None = None
    merged: int = 1
    count: int = 1

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.count * sum(self.parts)


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
    first, last = facts.on_all_stages or stage == 0, facts.on_all_stages or stage == settings.stages - 1
    table = ceil_div(facts.vocab, _VOCAB_PADDING) * _VOCAB_PADDING * facts.hidden // settings.tensor
    if first or (last and facts.tied_embeddings):
        yield Tensor("embedding", (table * settings.dtype_bytes,))
    if first and facts.position_elements:
        yield Tensor("embedding", (facts.position_elements * settings.dtype_bytes,))
    if first and facts.embedding_norm:
        yield Tensor("norm", (facts.norm_elements * settings.dtype_bytes,))
    for layer, count in _alike(facts, settings.quantization, stage_layers(settings, stage)):
        for tensor in _layer(facts, settings, layer):
            yield replace(tensor, count=count * tensor.count)
    if last:
        yield Tensor("norm", (facts.norm_elements * settings.dtype_bytes,))
        if not facts.tied_embeddings:
            yield Tensor("head", (table * settings.dtype_bytes,))
        if facts.head_bias:
            yield Tensor("head", (table // facts.hidden * settings.dtype_bytes,))


@lru_cache(maxsize=8)  # every variant of a plan calls it with the same arguments
def _kinds_of_layers(facts: ModelFacts, quantization: Quantization | None) -> tuple[Hashable, ...]:
    """Of each layer, a mark that is the same for those with the same tensors."""
    return tuple(
        (
            facts.moe is not None and layer in facts.moe.layers,
            quantization and frozenset(m for m in _MODULES if f"model.layers.{layer}.{m}" in quantization.skipped),
        )
        for layer in range(facts.layers)
    )


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
    yield from _attention(facts, settings, layer)
    yield from _feed_forward(facts, settings, layer)
    yield Tensor("norm", (facts.norm_elements * settings.dtype_bytes,), count=facts.norms_per_layer)


def _linear(settings: Settings, kind: str, modules: list[str], outputs: int, inputs: int) -> Tensor:
    """A linear layer; `modules` are its name in vLLM, and when it is made of several of the checkpoint, theirs."""
    quantization = settings.quantization
    if quantization is None or any(module in quantization.skipped for module in modules):
        parts: tuple[int, ...] = (outputs * inputs * settings.dtype_bytes,)
    else:
        parts = quantization.linear_parts(outputs, inputs, settings.dtype_bytes)
    return Tensor(kind, parts, (outputs, inputs), merged=max(1, len(modules) - 1))


def local_kv_heads(facts: ModelFacts, tensor: int) -> int:
    """KV heads of one rank, replicated where there are fewer than ranks.

    Source: `get_num_kv_heads` in vllm/config/model.py.
    """
    return max(1, facts.kv_heads // tensor)


def _attention(facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    name = f"model.layers.{layer}.self_attn"
    if facts.mla is not None:
        yield from _latent_attention(facts, facts.mla, settings, name)
        return
    heads, kv_heads = facts.heads // settings.tensor, local_kv_heads(facts, settings.tensor)
    outputs = (heads + 2 * kv_heads) * facts.head_dim
    inner = ("qkv_proj",) if facts.packed_qkv else ("qkv_proj", "q_proj", "k_proj", "v_proj")
    yield _linear(settings, "attention", [f"{name}.{module}" for module in inner], outputs, facts.hidden)
    yield _linear(settings, "attention", [f"{name}.o_proj"], facts.hidden, heads * facts.head_dim)
    if facts.qkv_bias:
        yield Tensor("attention", (outputs * settings.dtype_bytes,))
    if facts.output_bias:
        yield Tensor("attention", (facts.hidden * settings.dtype_bytes,))
    if facts.qk_norm_elements:
        yield Tensor("norm", (facts.qk_norm_elements * settings.dtype_bytes,))


def _latent_attention(facts: ModelFacts, mla: MLA, settings: Settings, name: str) -> Iterator[Tensor]:
    """MLA's projections; those into the latent space are whole on every rank (models/deepseek_v2.py).

    Quantised checkpoints hold `kv_b_proj` once more in the model's dtype, for decode
    (`process_weights_after_loading` in vllm/model_executor/layers/attention/mla_attention.py).
    """
    heads = facts.heads // settings.tensor
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim
    if mla.q_lora_rank is None:
        yield _linear(settings, "attention", [f"{name}.q_proj"], heads * mla.qk_head_dim, facts.hidden)
        yield _linear(settings, "attention", [f"{name}.kv_a_proj_with_mqa"], latent, facts.hidden)
    else:
        modules = [f"{name}.{module}" for module in ("fused_qkv_a_proj", "q_a_proj", "kv_a_proj_with_mqa")]
        yield _linear(settings, "attention", modules, mla.q_lora_rank + latent, facts.hidden)
        yield Tensor("norm", (mla.q_lora_rank * settings.dtype_bytes,))
        yield _linear(settings, "attention", [f"{name}.q_b_proj"], heads * mla.qk_head_dim, mla.q_lora_rank)
    yield Tensor("norm", (mla.kv_lora_rank * settings.dtype_bytes,))
    up = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield _linear(settings, "attention", [f"{name}.kv_b_proj"], up, mla.kv_lora_rank)
    if settings.quantization is not None:
        yield Tensor("attention", (up * mla.kv_lora_rank * settings.dtype_bytes,))
    yield _linear(settings, "attention", [f"{name}.o_proj"], facts.hidden, heads * mla.v_head_dim)


def _feed_forward(facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    name = f"model.layers.{layer}.mlp"
    if facts.moe is not None and layer in facts.moe.layers:
        yield from _experts(facts, facts.moe, settings, name)
    else:
        yield from _mlp(facts, settings, name, facts.intermediate)


def _mlp_modules(facts: ModelFacts) -> tuple[str, ...]:
    if not facts.gated_mlp:
        return ("up_proj",)
    return ("gate_up_proj",) if facts.packed_mlp else ("gate_up_proj", "gate_proj", "up_proj")


def _mlp(facts: ModelFacts, settings: Settings, name: str, width: int) -> Iterator[Tensor]:
    local = width // settings.tensor
    inner = _mlp_modules(facts)
    outputs = (2 if facts.gated_mlp else 1) * local
    yield _linear(settings, "mlp", [f"{name}.{module}" for module in inner], outputs, facts.hidden)
    yield _linear(settings, "mlp", [f"{name}.down_proj"], facts.hidden, local)
    if facts.mlp_bias:
        yield Tensor("mlp", ((outputs + facts.hidden) * settings.dtype_bytes,))


def _experts(facts: ModelFacts, moe: MoE, settings: Settings, name: str) -> Iterator[Tensor]:
    """Router, routed experts and shared experts.

    Source: FusedMoEParallelConfig.make in vllm/model_executor/layers/fused_moe/config.py: with expert parallelism each
    of tensor x data ranks has whole experts, without it each expert is sharded over all of them.
    """
    ranks = settings.tensor * settings.data
    local = ceil_div(moe.experts, settings.expert_ranks)
    width = moe.intermediate if settings.expert_ranks > 1 else moe.intermediate // ranks
    yield Tensor("experts", (moe.experts * facts.hidden * settings.dtype_bytes,))
    if moe.correction_bias:
        yield Tensor("experts", (moe.experts * 4,))
    up = _linear(settings, "experts", [f"{name}.experts"], 2 * width, facts.hidden)
    down = _linear(settings, "experts", [f"{name}.experts"], facts.hidden, width)
    yield from (Tensor("experts", tuple(local * part for part in each.parts)) for each in (up, down))
    if moe.shared_intermediate:
        yield from _mlp(facts, settings, f"{name}.shared_experts", moe.shared_intermediate)
    if moe.gated_sharing:
        yield Tensor("experts", (facts.hidden * settings.dtype_bytes,))
