"""Estimates the memory of activations, and of everything else except weights and KV cache.

vLLM measures both while it starts (`determine_available_memory` in vllm/v1/worker/gpu_worker.py). What is a tensor of
its profiling run is counted; constants are named with the starts that set them (benchmarks/results/memory.md).

Tests: tests/memory/test_measured.py, tests/memory/test_logged_starts.py, tests/memory/test_options.py
"""

from pdinference.memory.exchange import exchange_bytes
from pdinference.memory.figures import GIB, MIB, Figure, ceil_div, computed, unknown
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.model.state import DeltaNet, Mamba1, Mamba2, ShortConvolution, State
from pdinference.memory.model.usual_towers import TOO_SMALL
from pdinference.memory.settings import Settings
from pdinference.memory.weights.attention import local_kv_heads
from pdinference.memory.weights.feed_forward import expert_width
from pdinference.memory.weights.tensors import stage_layers

_WORKSPACE = round(0.116 * GIB)
"""Bytes that the forward pass takes beyond its tensors (cuBLAS workspaces, inputs): 0.099, 0.105 and 0.143 GiB in the
three measured rows."""
_CUBLAS = 32 * MIB
"""Bytes of cuBLAS's workspace on Hopper (`getChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp)."""
_OUTSIDE_TORCH = round(0.22 * GIB)
"""Bytes of CUDA's context and libraries, and with several ranks of what they talk through: 0.22 GiB in the measured
rows of one rank. With two ranks on NVLink vLLM logged 0.07 outside of PyTorch, and the rest within it."""
_GRAPH_PER_LAYER = round(0.22 * MIB)
"""Bytes of one CUDA graph for each layer: set by four starts of dense models with 54 to 102 graphs (0.22 to 0.32)."""
_EXPERT_GRAPH_PER_LAYER = round(0.155 * MIB)
"""The same of mixtures of experts: Qwen3-30B-A3B (86 graphs) and gpt-oss-20b (166) on an H100."""
_PROGRAMS = 132
"""Rows of the buffer in which V1's sampler filters, one for each multiprocessor: those of an H100."""
_UNSURE_GRAPHS = 0.35
"""By how much of the estimate the CUDA graphs of single starts were off."""
_UNSURE = round(0.15 * GIB)
"""By how much the rest was off: what drivers and libraries take, memory that PyTorch's allocator cannot give back."""


def activations(facts: ModelFacts, settings: Settings, stage: int) -> Figure:
    """Peak bytes that profiling takes beyond the weights, at a start that compiles the model.

    Buffers stay; of the passes that vLLM runs one after the other, the largest counts (`profile_run` in
    vllm/v1/worker/gpu_model_runner.py and vllm/v1/worker/gpu/model_runner.py).
    """
    if settings.cpu:
        return computed(0, "vLLM's CPU memory model sets the KV cache without measuring activations.")
    if facts.unfit:
        return unknown(facts.unfit_note)
    passes = _passes(facts, settings, stage)
    size, what = max((size, what) for what, size in passes.items())
    kept = _kept(facts, settings, stage)
    if settings.batch_assumed:
        what += " (vLLM's default for small devices; set maxNumBatchedTokens to be sure)"
    parts = [f"Estimate for {what}"]
    if kept >= 10 * MIB:
        parts.append(f"with {kept / GIB:.2f} GiB of buffers that stay")
    missing = bool(facts.has_more) and settings.encodes and not (facts.tower and facts.tower.image_elements)
    encoder = " Without what images or audio take while they are encoded." if missing else ""
    return computed(size + kept, f"{', '.join(parts)}.{encoder}")


def overhead(facts: ModelFacts, settings: Settings, stage: int) -> Figure:
    """Bytes of CUDA's context, of communication and of CUDA graphs."""
    if settings.cpu:
        return computed(0, "vLLM's CPU memory model has no such part; the process itself needs about 1 GiB.")
    size, parts = _OUTSIDE_TORCH, ["0.22 GiB outside PyTorch (measured on an H200)"]
    graphs = graph_bytes(facts, settings, stage)
    number = settings.captured
    if graphs and _second_runner(facts):
        parts.append(f"{number} CUDA graphs come out of the rest of the device up to vLLM 0.28; later releases "
                     f"subtract them too, about {graphs / GIB:.2f} GiB, as the lower end has it")  # fmt: skip
    elif graphs:
        size += graphs
        parts.append(f"{graphs / GIB:.2f} GiB of {number} CUDA graphs")
    buffers, backend = exchange_bytes(facts, settings), settings.expert_transport
    if buffers:
        size += buffers
        parts.append(f"{buffers / GIB:.2f} GiB of buffers of {backend}")
    without = f" Without the buffers of {backend}, whose size is not known." if buffers is None else ""
    return computed(size, f"Estimate: {', '.join(parts)}.{without}")


def graph_bytes(facts: ModelFacts, settings: Settings, stage: int) -> int:
    """Bytes of the CUDA graphs of a stage."""
    each = _GRAPH_PER_LAYER if facts.moe is None else _EXPERT_GRAPH_PER_LAYER
    return each * len(stage_layers(settings, stage)) * settings.captured


def unsure(facts: ModelFacts, settings: Settings, stage: int) -> tuple[int, int]:
    """By how many bytes a start may leave less, or more, for the KV cache than planned.

    Less: CUDA graphs that newer releases subtract for dense models too, and the spread of single starts. More: a start
    that finds the compiled model in its cache, so that the compiler measures no kernels.
    """
    if settings.cpu or settings.kv_budget is not None or facts.unfit:
        return 0, 0
    graphs = graph_bytes(facts, settings, stage)
    passes = _passes(facts, settings, stage)
    warm = max(size for what, size in passes.items() if what != _COMPILING)
    fewer = _UNSURE + round(_UNSURE_GRAPHS * graphs) + (graphs if _second_runner(facts) else 0)
    if facts.tower is not None and facts.tower.estimated and settings.encodes:
        fewer += round(TOO_SMALL * facts.tower.elements(settings.tensor)) * settings.dtype_bytes
    return fewer, _UNSURE + round(_UNSURE_GRAPHS * graphs) + max(0, max(passes.values()) - warm)


_COMPILING = "the compiler's measurement of kernels"


def _passes(facts: ModelFacts, settings: Settings, stage: int) -> dict[str, int]:
    """Peak bytes of each pass of profiling, by what it is.

    While a layer runs, there are the hidden state, the residual, and the largest pair of input and output within it: in
    a gated MLP, gate_up (2 x width) and its product (width). Then the last stage samples; hidden states are there yet.
    """
    tokens, element = settings.max_num_batched_tokens, settings.dtype_bytes
    inside = max(_layer_elements(facts, settings, layer) for layer in stage_layers(settings, stage))
    passes = {f"{tokens} tokens in a step": tokens * (2 * facts.hidden + inside) * element + _WORKSPACE}
    text_alone = not (facts.has_more and settings.encodes)
    if not settings.eager and text_alone and stage == 0:
        # Inductor measures kernels that it may combine (`benchmark_combo_kernel` in vllm/config/compilation.py) on
        # inputs of its own, and the first one reads the embedding. With images, embeddings are made outside.
        table = ceil_div(facts.vocab, settings.tensor) * facts.hidden
        passes[_COMPILING] = (table + 2 * tokens * facts.hidden) * element
    if stage == settings.stages - 1:
        rows = min(settings.max_num_seqs, tokens)
        passes[f"logits of {rows} requests"] = _sampling(facts, settings, rows)
    if stage == 0 and settings.encodes and facts.tower is not None and facts.tower.image_elements:
        passes["an image of the largest size"] = facts.tower.image_elements * element
    return passes


def _sampling(facts: ModelFacts, settings: Settings, rows: int) -> int:
    """Bytes of logits and of what samples from them.

    The first runner samples with top-k and top-p: the logits in float32, their probabilities and random numbers, and a
    buffer of the filter (`_dummy_sampler_run` in vllm/v1/worker/gpu_model_runner.py, topk_topp_triton.py); the second
    one only takes the largest (vllm/v1/worker/gpu/sample/sampler.py).
    """
    hidden = (rows + settings.max_num_batched_tokens) * facts.hidden * settings.dtype_bytes
    logits = rows * facts.vocab * settings.dtype_bytes
    if _second_runner(facts):
        return logits + hidden + _CUBLAS
    return logits + 3 * 4 * rows * facts.vocab + 4 * _PROGRAMS * facts.vocab + hidden + _CUBLAS


def _second_runner(facts: ModelFacts) -> bool:
    """Whether vLLM's second model runner takes the model since 0.23: all but mixtures of experts and hybrids.

    Source: `_is_default_v2_model_runner_model` in vllm/config/vllm.py of 0.28. From 0.29 on it takes the others too;
    it then keeps less for sampling, and more for penalties.
    """
    return facts.moe is None and not facts.recurrent


def _kept(facts: ModelFacts, settings: Settings, stage: int) -> int:
    """Bytes of buffers that stay: counts for penalties, and the workspace of experts."""
    kept = 0
    if stage == settings.stages - 1 and _second_runner(facts):
        # `PenaltiesState` in vllm/v1/worker/gpu/sample/penalties.py: a number and a bit for each word and request
        kept += settings.max_num_seqs * facts.vocab * 4 + settings.max_num_seqs * ceil_div(facts.vocab, 32) * 4
    moe = facts.moe
    mxfp4 = settings.quantization is not None and settings.quantization.experts_only
    if moe is None or mxfp4 or moe.layers.isdisjoint(stage_layers(settings, stage)):
        return kept
    # `workspace_shapes` of the experts in vllm/model_executor/layers/fused_moe: one for the first product and the
    # output of each chosen expert, another for the activation and the output.
    width, hidden = expert_width(moe, settings), moe.latent or facts.hidden
    elements = max(2 * width, hidden) + max(width, hidden)
    return kept + settings.max_num_batched_tokens * moe.per_token * elements * settings.dtype_bytes


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
    # What the experts work in stays, see `_kept`; with MXFP4 the kernels take it for the step.
    mxfp4 = settings.quantization is not None and settings.quantization.experts_only
    width, hidden = expert_width(moe, settings), moe.latent or facts.hidden
    routed = (moe.per_token * (max(2 * width, hidden) + width) if mxfp4 else 0) + facts.hidden
    return routed + 3 * moe.shared_intermediate // settings.tensor
