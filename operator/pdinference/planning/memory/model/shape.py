"""A model's shape, in one form for all architectures."""

from dataclasses import dataclass

from pdinference.api.words import cut
from pdinference.planning.memory import ways_out
from pdinference.planning.memory.model.quantization import Quantization

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
    """

    experts: int
    per_token: int
    intermediate: int
    layers: frozenset[int]
    shared_intermediate: int = 0
    gated_sharing: bool = False
    correction_bias: bool = False


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model's shape.

    Attributes:
        last_version: The last vLLM version with a class for this model type; empty: the pinned version has one.
        packed_qkv: Whether the checkpoint has queries, keys and values in one tensor.
        packed_mlp: Whether it has the gate and the first product in one.
        on_all_stages: Whether each pipeline stage allocates embedding, last norm and head, used or not.
        embedding_norm: Whether there is a norm after the embedding.
        norm_elements: Elements of a norm: the hidden size, twice that with a bias.
        qk_norm_elements: Elements of the norms of queries and keys in each layer; 0 without.
        position_elements: Elements of learned positions; 0 where positions are rotary.
        gated_mlp: Whether the feed-forward part has a gate beside its first product.
        windows: For each layer, the sliding window in tokens, or None where it attends to everything.
        has_more: Parts besides the language model, such as a vision tower. Their weights are not computed.
        recurrent: Whether layers keep a state instead of a KV cache (Mamba, linear attention).
        other_state: Whether layers keep something else than a KV cache, or besides it (Mamba, sparse attention).
        stretched: Whether the model may take more tokens than max_length.
        dtype: The type that the checkpoint names, for example `bfloat16`.
        unfit: Problems of members of config.json. With a problem, all numbers of the plan are unknown.
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
    on_all_stages: bool
    embedding_norm: bool
    norms_per_layer: int
    norm_elements: int
    qk_norm_elements: int
    position_elements: int
    windows: tuple[int | None, ...]
    max_length: int | None
    stretched: bool
    dtype: str | None
    mla: MLA | None
    moe: MoE | None
    quantization: Quantization | None
    has_more: tuple[str, ...]
    recurrent: bool
    other_state: bool
    tensors_known: bool
    unfit: tuple[str, ...] = ()

    @property
    def architecture_known(self) -> bool:
        """Whether the weights can be computed from the shape alone."""
        return self.tensors_known and not (self.has_more or self.other_state or self.unfit)

    @property
    def unfit_note(self) -> str:
        """Why no number of the plan is known where members of config.json do not fit."""
        found = cut(f"config.json has members that the plan cannot read: {' '.join(self.unfit)}", _LONGEST_NOTE)
        return f"{found} {ways_out.MEMBERS}"
