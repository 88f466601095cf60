"""What a model's `config.json` says, in one form for all architectures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.planning.memory.architectures import ARCHITECTURES, UNKNOWN, Says, Traits
from pdinference.planning.memory.quantization import Quantization, quantization_of

Config = Mapping[str, Any]

_KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
"""Where vLLM looks for the number of KV heads (vllm/transformers_utils/model_arch_config_convertor.py)."""
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_INTERMEDIATE = ("intermediate_size", "ffn_dim", "n_inner")
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_PER_TOKEN = ("num_experts_per_tok", "moe_k")
_SHARED = ("n_shared_experts", "moe_num_shared_experts")
_OTHER_STATE = (
    "mamba_d_state", "ssm_state_size", "linear_num_value_heads", "linear_attn_config", "attn_type_list",
    "index_head_dim", "compress_ratios",
)  # fmt: skip
"""Signs of a state that is no plain KV cache: Mamba, linear attention, DeepSeek's index of sparse attention."""
_MORE = ("vision_config", "audio_config")
STRETCHED = ("rope_scaling", "rope_parameters")
"""Signs that a model may take more tokens than max_position_embeddings."""

PRESENCE_KEYS = frozenset({*_OTHER_STATE, *_MORE, *STRETCHED})
"""Members of which only counts whether they say something."""
CONFIG_KEYS = frozenset(
    {*_KV_HEADS, "model_type", *_LAYERS, "hidden_size", "n_embd", "d_model", *_INTERMEDIATE, *_EXPERTS, *_PER_TOKEN}
    | {"num_attention_heads", "n_head", "n_heads", "multi_query", "head_dim", "vocab_size", "word_embed_proj_dim"}
    | {"tie_word_embeddings", "attention_bias", "mlp_bias", "max_position_embeddings", "n_positions"}
    | {"max_sequence_length", "dtype", "torch_dtype", "sliding_window", "use_sliding_window", "layer_types"}
    | {"sliding_window_pattern", "max_window_layers", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim"}
    | {"qk_rope_head_dim", "v_head_dim", "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval"}
    | {"moe_intermediate_size", "decoder_sparse_step", "moe_layer_freq", "first_k_dense_replace", "mlp_only_layers"}
    | {"shared_expert_intermediate_size", *_SHARED, "topk_method", "use_bias", "enable_bias", "bias"}
    | {"use_qkv_bias", "attention_out_bias", "use_qk_norm", "qk_layernorm", "use_parallel_residual", "lm_head_bias"}
    | {"add_cross_attention"}
)
"""All other members that are read here; a status keeps only these."""


class UnusableConfigError(ValueError):
    """A config.json lacks what every plan needs; the message says what."""


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
        norm_elements: Elements of a norm: the hidden size, twice that with a bias.
        qk_norm_elements: Elements of the norms of queries and keys in each layer; 0 without.
        position_elements: Elements of learned positions; 0 where positions are rotary.
        gated_mlp: Whether the feed-forward part has a gate beside its first product.
        windows: For each layer, the sliding window in tokens, or None where it attends to everything.
        has_more: What the model has besides the language model, such as a vision tower; its weights are not computed.
        other_state: Whether layers keep something else than a KV cache, or besides it (Mamba, sparse attention).
        dtype: The type that the checkpoint names, for example `bfloat16`.
    """

    model_type: str
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
    norms_per_layer: int
    norm_elements: int
    qk_norm_elements: int
    position_elements: int
    windows: tuple[int | None, ...]
    max_length: int | None
    dtype: str | None
    mla: MLA | None
    moe: MoE | None
    quantization: Quantization | None
    has_more: tuple[str, ...]
    other_state: bool
    tensors_known: bool

    @property
    def architecture_known(self) -> bool:
        """Whether the weights can be computed from the shape alone."""
        return self.tensors_known and not self.has_more and not self.other_state


def model_facts(config: Config) -> ModelFacts:
    """Read a `config.json`.

    Args:
        config: The file's content.

    Raises:
        UnusableConfigError: The number of layers, heads or the hidden size is missing or no number.
    """
    text = _text_config(config)
    model_type = str(text.get("model_type") or config.get("model_type") or "")
    traits = ARCHITECTURES.get(model_type, UNKNOWN)
    text = {**traits.defaults, **text}
    layers = _number(text, *_LAYERS)
    hidden = _number(text, "hidden_size", "n_embd", "d_model")
    heads = _number(text, "num_attention_heads", "n_head", "n_heads")
    kv_heads = next((text[key] for key in _KV_HEADS if isinstance(text.get(key), int)), heads)
    if text.get("multi_query") is True and not any(key in text for key in _KV_HEADS):
        kv_heads = 1
    head_dim = text.get("head_dim") or hidden // heads
    return ModelFacts(
        model_type=model_type,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=_optional(text, *_INTERMEDIATE) or 4 * hidden,
        vocab=_number(text, "vocab_size"),
        tied_embeddings=bool(text.get("tie_word_embeddings", False)),
        qkv_bias=_says(text, traits.qkv_bias),
        output_bias=_says(text, traits.output_bias),
        mlp_bias=_says(text, traits.mlp_bias),
        head_bias=traits.head_bias,
        gated_mlp=traits.gated,
        norms_per_layer=traits.norms,
        norm_elements=hidden * (2 if traits.norm_bias else 1),
        qk_norm_elements=_qk_norm_elements(traits, text, heads + kv_heads, head_dim),
        position_elements=_positions(traits, text) * hidden,
        windows=_windows(traits, text, layers),
        max_length=_optional(text, "max_position_embeddings", "n_positions", "max_sequence_length"),
        dtype=text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype"),
        mla=_mla(text),
        moe=_moe(traits, text, layers),
        quantization=quantization_of(config.get("quantization_config") or text.get("quantization_config")),
        has_more=tuple(key for key in _MORE if config.get(key)),
        other_state=any(text.get(key) for key in _OTHER_STATE) or "linear_attention" in (text.get("layer_types") or ()),
        tensors_known=model_type in ARCHITECTURES
        and not any(text.get(member) for member in traits.unless)
        and text.get("word_embed_proj_dim", hidden) == hidden,
    )


def _text_config(config: Config) -> Config:
    nested = config.get("text_config") or config.get("llm_config")
    return nested if isinstance(nested, Mapping) else config


def _optional(text: Config, *keys: str) -> int | None:
    value = next((text[key] for key in keys if text.get(key) is not None), None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _number(text: Config, *keys: str) -> int:
    value = _optional(text, *keys)
    if value is None:
        raise UnusableConfigError(f"config.json has no usable {keys[0]}; it has to be a positive integer.")
    return value


def _says(text: Config, says: Says) -> bool:
    return bool(text.get(says)) if isinstance(says, str) else says


def _qk_norm_elements(traits: Traits, text: Config, heads: int, head_dim: int) -> int:
    if not traits.qk_norm or (traits.qk_norm_switch and not text.get(traits.qk_norm_switch)):
        return 0
    return (heads if traits.qk_norm == "all" else 2) * head_dim


def _positions(traits: Traits, text: Config) -> int:
    if traits.positions is None:
        return 0
    member, more = traits.positions
    return _number(text, member) + more


def _windows(traits: Traits, text: Config, layers: int) -> tuple[int | None, ...]:
    """The window of each layer, as vLLM's models read it.

    Source: vllm/model_executor/models/{llama,gemma2,gemma3}.py (`layer_types`), and for a window without layer types
    vllm/model_executor/layers/attention/attention.py, which applies it to every layer.
    """
    window = _optional(text, "sliding_window")
    if window is None or (traits.window_switch and not text.get("use_sliding_window")):
        return (None,) * layers
    if kinds := text.get("layer_types"):
        return tuple(window if kind == "sliding_attention" else None for kind in kinds[:layers])
    pattern = _pattern(text.get("sliding_window_pattern")) or traits.sliding_every
    if pattern:
        return tuple(window if (index + 1) % pattern else None for index in range(layers))
    if traits.window_switch:
        first = text.get("max_window_layers", layers)
        return tuple(window if index >= first else None for index in range(layers))
    return (window,) * layers


def _pattern(value: object) -> int:
    """Of how many layers the last one attends to everything; EXAONE writes `LLLG` for 4."""
    if isinstance(value, str):
        return len(value)
    return value if isinstance(value, int) and value > 0 else 0


def _mla(text: Config) -> MLA | None:
    if text.get("kv_lora_rank") is None:
        return None
    return MLA(
        kv_lora_rank=_number(text, "kv_lora_rank"),
        q_lora_rank=_optional(text, "q_lora_rank"),
        qk_nope_head_dim=_number(text, "qk_nope_head_dim"),
        qk_rope_head_dim=_number(text, "qk_rope_head_dim"),
        v_head_dim=_number(text, "v_head_dim"),
    )


def _moe(traits: Traits, text: Config, layers: int) -> MoE | None:
    experts = _optional(text, *_EXPERTS)
    if experts is None:
        return None
    width = _optional(text, "moe_intermediate_size") or _number(text, *_INTERMEDIATE)
    shared = _optional(text, "shared_expert_intermediate_size") or width * (_optional(text, *_SHARED) or 0)
    return MoE(
        experts=experts,
        per_token=_number(text, *_PER_TOKEN),
        intermediate=width,
        layers=_expert_layers(text, layers),
        shared_intermediate=shared,
        gated_sharing=traits.gated_sharing,
        correction_bias=text.get("topk_method") == "noaux_tc" or traits.correction_bias,
    )


def _expert_layers(text: Config, layers: int) -> frozenset[int]:
    step = _optional(text, "decoder_sparse_step", "moe_layer_freq", "moe_layer_interval") or 1
    first = text.get("first_k_dense_replace") or text.get("moe_layer_start_index") or 0
    last = _optional(text, "moe_layer_end_index") or layers - 1
    dense = set(text.get("mlp_only_layers") or ())
    # Qwen and ERNIE count from one (models/qwen2_moe.py, ernie45_moe.py), DeepSeek from zero (models/deepseek_v2.py).
    offset = 1 if "decoder_sparse_step" in text or "moe_layer_interval" in text else 0
    return frozenset(i for i in range(first, min(layers, last + 1)) if i not in dense and (i + offset) % step == 0)
