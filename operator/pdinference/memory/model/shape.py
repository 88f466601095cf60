"""A model's shape, in one form for all architectures.

Tests: tests/memory/test_newer.py, tests/memory/test_kv.py
"""

from dataclasses import dataclass
from typing import Literal

from pdinference.api.words import cut
from pdinference.memory import ways_out
from pdinference.memory.model.quantization import Quantization
from pdinference.memory.model.state import State
from pdinference.memory.model.tower import Tower

_LONGEST_NOTE = 600


@dataclass(frozen=True, slots=True)
class MLA:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): sizes in elements."""

    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def qk_head_dim(self) -> int:
        """Size of a query or key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True)
class MoE:
    """A mixture of experts.

    Attributes:
        layers: Indexes of the layers that have experts; the others are dense.
        shared_intermediate: Width of the experts that every token passes, together; 0 without.
        gated_sharing: Whether a gate weighs the shared expert (Qwen2-MoE).
        router_float32: Whether the router is in float32, whatever the model's dtype.
        biases: Whether router and experts have biases (gpt-oss).
        latent: Width in which experts work; None: the hidden size (Nemotron-H).
        beside_dense: Whether each such layer has the dense feed-forward part as well (Gemma 4).
    """

    experts: int
    per_token: int
    intermediate: int
    layers: frozenset[int]
    shared_intermediate: int = 0
    gated_sharing: bool = False
    correction_bias: bool = False
    router_float32: bool = False
    biases: bool = False
    latent: int | None = None
    beside_dense: bool = False


@dataclass(frozen=True, slots=True)
class Indexer:
    """The index of sparse attention (DeepSeek-V3.2), a key for each token.

    Attributes:
        layers: Layers that have one of their own; others use the choice of an earlier layer.
    """

    layers: frozenset[int]
    heads: int
    head_dim: int

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in a layer, whole on every rank: 8-bit elements and a scale for each 128 of them.

        Source: `DeepseekV32IndexerCache` in vllm/model_executor/models/deepseek_v2.py.
        """
        return self.head_dim + self.head_dim // 128 * 4


@dataclass(frozen=True, slots=True)
class PerLayerInput:
    """An embedding of each layer's own (Gemma 4 E2B and E4B): its width, and its vocabulary."""

    width: int
    vocab: int


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model's shape.

    Attributes:
        last_version: The last vLLM version with a class for this model type; empty: the pinned version has one.
        packed_qkv: Whether the checkpoint has queries, keys and values in one tensor.
        packed_mlp: Whether it has the gate and the first product in one.
        on_all_stages: What each pipeline stage allocates, used or not: embedding, last norm, head.
        embedding_norm: Whether there is a norm after the embedding.
        norm_elements: Elements of a norm: the hidden size, twice that with a bias.
        qk_norm_elements: Elements of the norms of queries and keys in each layer; 0 without.
        qk_norm_shared: Whether ranks share these.
        position_elements: Elements of learned positions; 0 where positions are rotary.
        gated_mlp: Whether the feed-forward part has a gate beside its first product.
        windows: For each layer, the sliding window in tokens, or None where it attends to everything or not at all.
        chunked: Whether windows are chunks, which begin at multiples of their size (Llama 4).
        attention: Indexes of the layers that attend.
        full_kv_heads: KV heads of layers that attend to everything; `kv_heads` are those of the others.
        full_head_dim: Size of a head there.
        own_kv: The first layers, which have a KV cache of their own; later ones use that of an earlier layer.
        wide_mlp: Whether these later layers have a feed-forward part of twice the width.
        output_gate: Whether queries have a gate beside them.
        layer_heads: Attention heads of each layer; empty: all have `heads`.
        separate_gate: What a gate of attention's output, in a layer of its own, has a number for; empty: there is none.
        sinks: Whether each head has a sink.
        window_sinks: Whether those in layers with a window have one.
        value_dim: Size of a value; 0: that of a key.
        state: Layers that keep a state of fixed size for each request; None where no layer does, or they are not known.
        state_dtype: Type of what their recurrence accumulates; empty: the model's.
        feed_forward: Indexes of the layers with a feed-forward part.
        has_more: Parts besides the language model, such as a vision tower.
        tower: Elements of its towers; None where they are not known, or there is none.
        recurrent: Whether layers keep a state instead of a KV cache (Mamba, linear attention).
        other_state: Whether layers keep something that is not computed here.
        stretched: Whether the model may take more tokens than max_length.
        dtype: The type that the checkpoint names, for example `bfloat16`.
        unfit: Problems of members of config.json. With a problem, all numbers of the plan are unknown.
        mtp_layers: Layers that vLLM adds to propose tokens (MTP), if it is asked to.
    """

    model_type: str
    last_version: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_bias: bool
    gated_mlp: bool
    packed_qkv: bool
    packed_mlp: bool
    on_all_stages: frozenset[str]
    embedding_norm: bool
    norms_per_layer: int
    norm_elements: int
    qk_norm_elements: int
    qk_norm_shared: bool
    position_elements: int
    windows: tuple[int | None, ...]
    chunked: bool
    attention: frozenset[int]
    full_kv_heads: int
    full_head_dim: int
    own_kv: int
    wide_mlp: bool
    output_gate: bool
    layer_heads: tuple[int, ...]
    separate_gate: Literal["", "element", "head"]
    sinks: bool
    window_sinks: bool
    value_dim: int
    state: State | None
    state_dtype: str
    feed_forward: frozenset[int]
    per_layer_input: PerLayerInput | None
    max_length: int | None
    stretched: bool
    dtype: str | None
    mla: MLA | None
    indexer: Indexer | None
    moe: MoE | None
    quantization: Quantization | None
    has_more: tuple[str, ...]
    tower: Tower | None
    recurrent: bool
    other_state: bool
    tensors_known: bool
    unfit: tuple[str, ...] = ()
    mtp_layers: int = 1

    @property
    def architecture_known(self) -> bool:
        """Whether the weights can be computed from the shape alone."""
        more = self.has_more and self.tower is None
        return self.tensors_known and not (more or self.other_state or self.unfit)

    @property
    def full_layers(self) -> int:
        """Layers that attend to everything."""
        return sum(self.windows[layer] is None for layer in self.attention)

    @property
    def windowed_layers(self) -> int:
        """Layers that attend to a window or to a chunk."""
        return len(self.attention) - self.full_layers

    @property
    def state_layers(self) -> int:
        """Layers that keep a state; some models have it beside attention (Falcon-H1)."""
        return len(self.state.layers) if self.state else 0

    @property
    def mtp_attention(self) -> int:
        """The layer that those of MTP attend like: the last one with a KV cache of its own; MiMo-V2's have a window."""
        own = sorted(layer for layer in self.attention if layer < self.own_kv)
        windowed = [layer for layer in own if self.windows[layer] is not None]
        return next(reversed(windowed if self.value_dim and windowed else own), 0)

    def query_heads(self, layer: int) -> int:
        """Attention heads of a layer."""
        return self.layer_heads[layer] if self.layer_heads else self.heads

    def kv_shape(self, layer: int) -> tuple[int, int]:
        """KV heads of a layer, and the size of one."""
        full = self.windows[layer] is None
        return (self.full_kv_heads, self.full_head_dim) if full else (self.kv_heads, self.head_dim)

    def has_sinks(self, layer: int) -> bool:
        """Whether the heads of a layer have sinks."""
        return self.sinks or (self.window_sinks and self.windows[layer] is not None)

    def value_size(self, layer: int) -> int:
        """Elements of a value of one head."""
        return self.value_dim or self.kv_shape(layer)[1]

    @property
    def unfit_note(self) -> str:
        """Why no number of the plan is known where members of config.json do not fit."""
        found = cut(f"config.json has members that the plan cannot read: {' '.join(self.unfit)}", _LONGEST_NOTE)
        return f"{found} {ways_out.MEMBERS}"
