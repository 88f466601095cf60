"""The tensors of feed-forward parts and experts that one rank holds.

Tests: tests/memory/weights/test_weights.py
"""

from collections.abc import Iterator

from pdinference.memory.expert_padding import NO_PADDING
from pdinference.memory.figures import ceil_div
from pdinference.memory.model.shape import ModelFacts, MoE
from pdinference.memory.settings import Settings
from pdinference.memory.weights.linear import Tensor, linear, plain
from pdinference.memory.weights.modules import modules


def feed_forward(facts: ModelFacts, settings: Settings, layer: int) -> Iterator[Tensor]:
    """The tensors of one layer's feed-forward part."""
    moe = facts.moe
    if moe is not None and layer in moe.layers:
        yield from _experts(facts, moe, settings, layer)
        if not moe.beside_dense:
            return
    doubled = facts.wide_mlp and layer >= facts.own_kv
    yield from _mlp(facts, settings, layer, "mlp", facts.intermediate * (2 if doubled else 1))


def expert_width(moe: MoE, settings: Settings) -> int:
    """Width of an expert's part on one rank.

    Source: FusedMoEParallelConfig.make in vllm/model_executor/layers/fused_moe/config.py: with expert parallelism each
    of tensor x data ranks has whole experts, without it each expert is sharded over all of them.
    """
    return moe.intermediate if settings.expert_ranks > 1 else moe.intermediate // (settings.tensor * settings.data)


def _mlp(facts: ModelFacts, settings: Settings, layer: int, part: str, width: int) -> Iterator[Tensor]:
    local = width // settings.tensor
    outputs = (2 if facts.gated_mlp else 1) * local
    inner = modules(
        facts, layer, part, *(("gate_up_proj", "gate_proj", "up_proj") if facts.gated_mlp else ("up_proj",))
    )
    merged = 2 if facts.gated_mlp and not facts.packed_mlp else 1
    yield linear(settings, "mlp", inner, outputs, facts.hidden, merged=merged)
    yield linear(settings, "mlp", modules(facts, layer, part, "down_proj"), facts.hidden, local)
    if facts.mlp_bias:
        yield plain(settings, "mlp", outputs + facts.hidden)


def _experts(facts: ModelFacts, moe: MoE, settings: Settings, layer: int) -> Iterator[Tensor]:
    """Router, routed experts and shared experts."""
    router = moe.experts * facts.hidden + (moe.experts if moe.biases else 0)
    yield Tensor("experts", (router * (4 if moe.router_float32 else settings.dtype_bytes),))
    if moe.correction_bias:
        yield Tensor("experts", (moe.experts * 4,))
    if moe.beside_dense:
        yield plain(settings, "experts", facts.hidden + moe.experts)
        yield Tensor("norm", (facts.norm_elements * settings.dtype_bytes,), count=3)
    yield from _routed(facts, moe, settings, layer)
    if moe.latent is not None:
        for name, outputs, inputs in (("fc1", moe.latent, facts.hidden), ("fc2", facts.hidden, moe.latent)):
            yield linear(settings, "experts", modules(facts, layer, "experts", f"{name}_latent_proj"), outputs, inputs)
    if moe.shared_intermediate:
        yield from _mlp(facts, settings, layer, "shared", moe.shared_intermediate)
    if moe.gated_sharing:
        yield plain(settings, "experts", facts.hidden)


def _routed(facts: ModelFacts, moe: MoE, settings: Settings, layer: int) -> Iterator[Tensor]:
    """The experts of this rank, each kind of tensor in one."""
    # EPLB has copies of some experts, spread like the others (`num_redundant_experts` in fused_moe/layer.py)
    local = ceil_div(moe.experts + settings.redundant_experts, settings.expert_ranks)
    width, hidden = expert_width(moe, settings), moe.latent or facts.hidden
    products = 2 if facts.gated_mlp else 1
    names = modules(facts, layer, "experts", "experts")
    quantization = settings.quantization
    if quantization is not None and not any(name in quantization.skipped for name in names):
        padding = settings.expert_padding if quantization.experts_only else NO_PADDING
        matrices = padding.matrices(width, hidden, products)
        stored = quantization.of_experts(width, hidden)
        parts = tuple(stored.linear_parts(*matrix, settings.dtype_bytes) for matrix in matrices)
    else:
        parts = ((products * width * hidden * settings.dtype_bytes,), (hidden * width * settings.dtype_bytes,))
    yield from (Tensor("experts", tuple(local * part for part in each)) for each in parts)
    if moe.biases:
        yield plain(settings, "experts", local * (products * width + hidden))
