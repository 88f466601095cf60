"""Estimates the memory of activations, and of everything else except weights and KV cache.

These are no exact formulas. vLLM measures both while it starts (`determine_available_memory` in
vllm/v1/worker/gpu_worker.py); the constants here are set by the H200 rows of docs/memory.md.
"""

from pdinference.planning.memory.figures import GIB, MIB, Figure, computed, unknown
from pdinference.planning.memory.model.shape import ModelFacts
from pdinference.planning.memory.model.state import DeltaNet, Mamba1, Mamba2, ShortConvolution, State
from pdinference.planning.memory.settings import Settings
from pdinference.planning.memory.weights.attention import local_kv_heads
from pdinference.planning.memory.weights.feed_forward import expert_width
from pdinference.planning.memory.weights.tensors import stage_layers

_WORKSPACE = round(0.116 * GIB)
"""Bytes that the forward pass takes beyond its tensors (cuBLAS workspaces, inputs): 0.099, 0.105 and 0.143 GiB in the
three measured rows."""
_CUBLAS = 32 * MIB
"""Bytes of cuBLAS's workspace on Hopper (`getChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp)."""
_OUTSIDE_TORCH = round(0.22 * GIB)
"""Bytes of CUDA's context and libraries, and with several ranks of what they talk through: 0.22 GiB in the measured
rows of one rank. With two ranks on NVLink vLLM logged 0.07 outside of PyTorch, and the rest within it."""
_GRAPHS_PER_LAYER = 20 * MIB
"""Bytes of CUDA graphs for each layer: 0.51 to 0.59 GiB measured for 32 layers, 0.89 for 28 and 512 requests."""


def activations(facts: ModelFacts, settings: Settings, stage: int) -> Figure:
    """Peak bytes of intermediate results in a step of max-num-batched-tokens.

    While a layer runs, there are the hidden state, the residual, and the largest pair of input and output within it: in
    a gated MLP, gate_up (2 x width) and its product (width). Then the last stage computes logits of each request, while
    the hidden states are still there. vLLM's profiling runs both (`profile_run` in
    vllm/v1/worker/gpu/model_runner.py) and the larger one counts.
    """
    if settings.cpu:
        return computed(0, "vLLM's CPU memory model sets the KV cache without measuring activations.")
    if facts.unfit:
        return unknown(facts.unfit_note)
    inside = max(_layer_elements(facts, settings, layer) for layer in stage_layers(settings, stage))
    forward = settings.max_num_batched_tokens * (2 * facts.hidden + inside) * settings.dtype_bytes
    rows = min(settings.max_num_seqs, settings.max_num_batched_tokens)
    elements = rows * facts.vocab + (rows + settings.max_num_batched_tokens) * facts.hidden
    logits = elements * settings.dtype_bytes + _CUBLAS if stage == settings.stages - 1 else 0
    what = f"{settings.max_num_batched_tokens} tokens in a step"
    if logits > forward + _WORKSPACE:
        what = f"logits of {rows} requests"
    if settings.batch_assumed:
        what += " (vLLM's default for small devices; set maxNumBatchedTokens to be sure)"
    encoder = " Without what images take while they are encoded." if facts.has_more else ""
    return computed(max(forward + _WORKSPACE, logits), f"Estimate for {what}, calibrated on runs on H200s.{encoder}")


def overhead(settings: Settings, stage: int) -> Figure:
    """Bytes of CUDA's context, of communication and of CUDA graphs."""
    if settings.cpu:
        return computed(0, "vLLM's CPU memory model has no such part; the process itself needs about 1 GiB.")
    size, parts = _OUTSIDE_TORCH, ["0.22 GiB outside PyTorch (measured on an H200)"]
    if not settings.eager:
        graphs = _GRAPHS_PER_LAYER * len(stage_layers(settings, stage))
        size += graphs
        parts.append(f"{graphs / GIB:.2f} GiB of CUDA graphs")
    return computed(size, f"Estimate: {', '.join(parts)}.")


def _layer_elements(facts: ModelFacts, settings: Settings, layer: int) -> int:
    """Elements for each token at the peak within a layer, on one rank."""
    parts = [0]
    if layer in facts.attention:
        parts.append(_attention_elements(facts, settings, layer))
    if facts.state is not None and layer in facts.state.layers:
        parts.append(_state_elements(facts.state, settings.tensor))
    if layer in facts.feed_forward:
        parts.append(_feed_forward_elements(facts, settings, layer))
    return max(parts)


def _attention_elements(facts: ModelFacts, settings: Settings, layer: int) -> int:
    heads = facts.query_heads(layer) // settings.tensor
    if facts.mla is not None:
        # q, the latent brought up to keys and values, and keys put together with their rotary part
        return heads * (3 * facts.mla.qk_head_dim + 2 * facts.mla.v_head_dim)
    kv_heads, head_dim = facts.kv_shape(layer)
    queries = (3 if facts.output_gate or facts.separate_gate == "element" else 2) * heads
    return (queries + 2 * local_kv_heads(kv_heads, settings.tensor)) * head_dim


def _state_elements(state: State, tensor: int) -> int:
    """What goes into the layer, what passes its convolution, and its output, which is as wide as its values."""
    match state:
        case DeltaNet():
            return 2 * (2 * state.keys + 2 * state.values) // tensor
        case Mamba2():
            return 2 * (state.convolved(tensor) + state.width // tensor)
        case Mamba1() | ShortConvolution():
            return 4 * state.width // tensor


def _feed_forward_elements(facts: ModelFacts, settings: Settings, layer: int) -> int:
    moe = facts.moe
    if moe is None or layer not in moe.layers:
        return 3 * facts.intermediate // settings.tensor
    # `fused_experts_impl` in vllm/model_executor/layers/fused_moe/fused_moe.py: one buffer for the first product and
    # the output of each chosen expert, another for the activation.
    width, hidden = expert_width(moe, settings), moe.latent or facts.hidden
    routed = moe.per_token * (max(2 * width, hidden) + width) + facts.hidden
    return routed + 3 * moe.shared_intermediate // settings.tensor
