"""What a step of a model has to compute and to read on one device, counted from its shape."""

from dataclasses import dataclass, replace
from functools import lru_cache

from pdinference.memory import kv
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.settings import Settings
from pdinference.memory.weights.linear import Tensor
from pdinference.memory.weights.tensors import stage_tensors


class NotCountedError(ValueError):
    """The work of a model is not known; the message says why."""


@dataclass(frozen=True, slots=True)
class Work:
    """Operations and bytes of one rank.

    Attributes:
        layers: Layers of the model.
        flops: Operations for each token in the linear layers of all layers, without routed experts.
        expert_flops: The same in the routed experts that it uses.
        head_flops: Operations for each sampled token in the head.
        pair_flops: Operations of attention for each pair of a query token and a token of context, in layers that attend
            to everything.
        window_pair_flops: The same in layers with a sliding window.
        dense_bytes: Bytes of weights that each step reads.
        expert_bytes: Bytes of all routed experts.
        experts: Number of routed experts; 0 without.
        experts_per_token: How many of them a token uses.
        kv_bytes: Bytes of KV cache that a running request reads for each token of its context in a step.
        window_kv_bytes: The same in layers with a sliding window, for each token within it.
        state_bytes: Bytes of the states of a running request (Mamba, linear attention), which a step reads and writes.
        kv8: Whether the KV cache is in 8 bits.
        window: Tokens of the sliding window; 0 without.
        low_precision: Whether matrix products run in FP8.
        reduced_bytes: Bytes of a token that ranks add up in a step; 0 on one rank.
        reductions: How many times in a step ranks do so.
        ranks: Tensor-parallel ranks.
    """

    layers: int
    flops: float
    expert_flops: float
    head_flops: float
    pair_flops: float
    window_pair_flops: float
    dense_bytes: float
    expert_bytes: float
    experts: int
    experts_per_token: int
    kv_bytes: float
    window_kv_bytes: float
    state_bytes: float
    kv8: bool
    window: int
    low_precision: bool
    reduced_bytes: float
    reductions: int
    ranks: int


def work_of(facts: ModelFacts, settings: Settings) -> Work:
    """Count the work of one rank, with one pipeline stage.

    Source of the counts: two operations for each weight of a linear layer and token (Kaplan et al., arXiv 2001.08361,
    table 1), and two products of queries, keys and values for each pair of tokens.

    Raises:
        NotCountedError: The architecture is not known, or has pipeline stages.
    """
    if not facts.architecture_known:
        raise NotCountedError(f"The tensors of model type {facts.model_type!r} are not known here.")
    if settings.stages > 1:
        raise NotCountedError("Pipeline stages are not simulated.")
    if settings.quantization is not None and not settings.quantization.bits:
        raise NotCountedError(f"The bits of quantization method {settings.quantization.method!r} are not known here.")
    return _counted(facts, settings)


@lru_cache(maxsize=64)  # every arrangement with the same settings has the same work
def _counted(facts: ModelFacts, settings: Settings) -> Work:
    tensors = tuple(stage_tensors(facts, settings, 0))
    head = facts.vocab * facts.hidden / settings.tensor
    dense, routed = _split(facts, tensors)
    moe = facts.moe
    readers = replace(facts, own_kv=facts.layers)  # layers without a KV cache of their own read that of an earlier one
    reductions = _reductions(facts) if settings.tensor > 1 else 0
    full = [layer for layer in facts.attention if facts.windows[layer] is None]
    windowed = facts.attention.difference(full)
    return Work(
        layers=facts.layers,
        flops=2 * sum(_elements(tensor) for tensor in dense),
        expert_flops=_expert_flops(facts, settings),
        head_flops=2 * head,
        pair_flops=sum(_pair_flops(facts, settings, layer) for layer in full),
        window_pair_flops=sum(_pair_flops(facts, settings, layer) for layer in windowed),
        dense_bytes=sum(tensor.size for tensor in dense) + head * settings.dtype_bytes,
        expert_bytes=sum(tensor.size for tensor in routed),
        experts=moe.experts if moe else 0,
        experts_per_token=moe.per_token if moe else 0,
        kv_bytes=sum(kv.layer_token_bytes(readers, settings, layer) for layer in full),
        window_kv_bytes=sum(kv.layer_token_bytes(readers, settings, layer) for layer in windowed),
        state_bytes=kv.request_bytes(facts, settings, 0),
        kv8=settings.kv_bytes == 1,
        window=max((window for window in facts.windows if window is not None), default=0),
        low_precision=settings.quantization is not None and settings.quantization.method in _FP8_METHODS,
        reduced_bytes=reductions * facts.hidden * settings.dtype_bytes,
        reductions=reductions,
        ranks=settings.tensor,
    )


_FP8_METHODS = {"fp8", "modelopt", "fbgemm_fp8", "mxfp8"}
"""Methods whose kernels multiply in FP8. Four-bit weights are brought to 16 bits first."""


def _reductions(facts: ModelFacts) -> int:
    """How many times in a step ranks add up: after attention or a state, and after a feed-forward part."""
    states = facts.state.layers if facts.state else frozenset()
    return len(facts.attention | states) + len(facts.feed_forward)


def _split(facts: ModelFacts, tensors: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that each token passes, and the routed experts."""
    inner = [tensor for tensor in tensors if tensor.kind not in {"embedding", "head", "vision"}]
    routed = [tensor for tensor in inner if facts.moe is not None and _is_routed(facts, tensor)]
    return [tensor for tensor in inner if tensor not in routed], routed


def _is_routed(facts: ModelFacts, tensor: Tensor) -> bool:
    """Routed experts are the tensors of that kind which are larger than their router."""
    if tensor.kind != "experts" or tensor.linear is not None or facts.moe is None:
        return False
    return sum(tensor.parts) > 4 * facts.moe.experts * facts.hidden


def _elements(tensor: Tensor) -> int:
    """Weights of linear layers; norms and biases do not count."""
    return tensor.count * tensor.linear[0] * tensor.linear[1] if tensor.linear is not None else 0


def _expert_flops(facts: ModelFacts, settings: Settings) -> float:
    moe = facts.moe
    if moe is None:
        return 0.0
    products = 3 if facts.gated_mlp else 2
    hidden = moe.latent or facts.hidden
    return 2 * products * moe.per_token * moe.intermediate * hidden * len(moe.layers) / settings.tensor


def _pair_flops(facts: ModelFacts, settings: Settings, layer: int) -> float:
    heads = facts.query_heads(layer) / settings.tensor
    if facts.mla is not None:
        return 2 * heads * (facts.mla.qk_head_dim + facts.mla.v_head_dim)
    return 2 * heads * (facts.kv_shape(layer)[1] + facts.value_size(layer))
