"""What a model's `config.json` says, in one form for all architectures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.planning.memory.quantization import Quantization, quantization_of

Config = Mapping[str, Any]

_KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
"""Where vLLM looks for the number of KV heads (vllm/transformers_utils/model_arch_config_convertor.py)."""
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
    {*_KV_HEADS, "model_type", "num_hidden_layers", "n_layer", "n_layers", "hidden_size", "n_embd", "d_model"}
    | {"num_attention_heads", "n_head", "n_heads", "multi_query", "head_dim", "intermediate_size", "vocab_size"}
    | {"tie_word_embeddings", "attention_bias", "mlp_bias", "max_position_embeddings", "n_positions"}
    | {"max_sequence_length", "dtype", "torch_dtype", "sliding_window", "use_sliding_window", "layer_types"}
    | {"sliding_window_pattern", "max_window_layers", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim"}
    | {"qk_rope_head_dim", "v_head_dim", "n_routed_experts", "num_local_experts", "num_experts"}
    | {"moe_intermediate_size", "decoder_sparse_step", "moe_layer_freq", "first_k_dense_replace", "mlp_only_layers"}
    | {"shared_expert_intermediate_size", "n_shared_experts", "num_experts_per_tok", "topk_method"}
)
"""All other members that are read here; a status keeps only these."""

_KNOWN = {
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
    "deepseek_v2", "deepseek_v3", "kimi_k2", "phi3", "granite",
}  # fmt: skip
"""Architectures whose tensors we know (planning/memory/tensors.py), by `model_type`."""

# What the classes of transformers fill in where a config.json is silent.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {"tie_word_embeddings": True},
    "gemma2": {"tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096},
    "gemma3_text": {
        "tie_word_embeddings": True, "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
        "vocab_size": 262208, "sliding_window": 4096, "sliding_window_pattern": 6, "max_position_embeddings": 131072,
    },
    "qwen2_moe": {"decoder_sparse_step": 1},
    "qwen3_moe": {"decoder_sparse_step": 1},
}  # fmt: skip
_SLIDING_EVERY = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}
"""Of so many layers, the last one attends to everything (transformers' configuration classes)."""
_WINDOW_NEEDS_SWITCH = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
"""Architectures whose sliding_window counts only with `use_sliding_window: true`."""


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
    norms_per_layer: int
    qk_norm: bool
    windows: tuple[int | None, ...]
    max_length: int | None
    dtype: str | None
    mla: MLA | None
    moe: MoE | None
    quantization: Quantization | None
    has_more: tuple[str, ...]
    other_state: bool

    @property
    def architecture_known(self) -> bool:
        """Whether the weights can be computed from the shape alone."""
        return self.model_type in _KNOWN and not self.has_more and not self.other_state


def model_facts(config: Config) -> ModelFacts:
    """Read a `config.json`.

    Args:
        config: The file's content.

    Raises:
        UnusableConfigError: The number of layers, heads or the hidden size is missing or no number.
    """
    text = _text_config(config)
    model_type = str(text.get("model_type") or config.get("model_type") or "")
    text = {**_DEFAULTS.get(model_type, {}), **text}
    layers = _number(text, "num_hidden_layers", "n_layer", "n_layers")
    hidden = _number(text, "hidden_size", "n_embd", "d_model")
    heads = _number(text, "num_attention_heads", "n_head", "n_heads")
    kv_heads = next((text[key] for key in _KV_HEADS if isinstance(text.get(key), int)), heads)
    if text.get("multi_query") is True and not any(key in text for key in _KV_HEADS):
        kv_heads = 1
    return ModelFacts(
        model_type=model_type,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=text.get("head_dim") or hidden // heads,
        intermediate=_optional(text, "intermediate_size") or 4 * hidden,
        vocab=_number(text, "vocab_size"),
        tied_embeddings=bool(text.get("tie_word_embeddings", False)),
        qkv_bias=bool(text.get("attention_bias")) or model_type in {"qwen2", "qwen2_moe"},
        output_bias=bool(text.get("attention_bias")) and model_type in {"llama", "granite"},
        mlp_bias=bool(text.get("mlp_bias")),
        norms_per_layer=4 if model_type in {"gemma2", "gemma3_text"} else 2,
        qk_norm=model_type in {"qwen3", "qwen3_moe", "gemma3_text"},
        windows=_windows(model_type, text, layers),
        max_length=_optional(text, "max_position_embeddings", "n_positions", "max_sequence_length"),
        dtype=text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype"),
        mla=_mla(text),
        moe=_moe(model_type, text, layers),
        quantization=quantization_of(config.get("quantization_config") or text.get("quantization_config")),
        has_more=tuple(key for key in _MORE if config.get(key)),
        other_state=any(text.get(key) for key in _OTHER_STATE) or "linear_attention" in (text.get("layer_types") or ()),
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


def _windows(model_type: str, text: Config, layers: int) -> tuple[int | None, ...]:
    """The window of each layer, as vLLM's models read it.

    Source: vllm/model_executor/models/{llama,gemma2,gemma3}.py (`layer_types`), and for a window without layer types
    vllm/model_executor/layers/attention/attention.py, which applies it to every layer.
    """
    window = _optional(text, "sliding_window")
    if window is None or (model_type in _WINDOW_NEEDS_SWITCH and not text.get("use_sliding_window")):
        return (None,) * layers
    if kinds := text.get("layer_types"):
        return tuple(window if kind == "sliding_attention" else None for kind in kinds[:layers])
    pattern = _optional(text, "sliding_window_pattern") or _SLIDING_EVERY.get(model_type)
    if pattern:
        return tuple(window if (index + 1) % pattern else None for index in range(layers))
    if model_type in _WINDOW_NEEDS_SWITCH:
        first = text.get("max_window_layers", layers)
        return tuple(window if index >= first else None for index in range(layers))
    return (window,) * layers


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


def _moe(model_type: str, text: Config, layers: int) -> MoE | None:
    experts = _optional(text, "n_routed_experts", "num_local_experts", "num_experts")
    if experts is None:
        return None
    width = _optional(text, "moe_intermediate_size") or _number(text, "intermediate_size")
    step = _optional(text, "decoder_sparse_step", "moe_layer_freq") or 1
    first = text.get("first_k_dense_replace", 0)
    dense = set(text.get("mlp_only_layers") or ())
    # Qwen counts from one (models/qwen2_moe.py), DeepSeek from zero (models/deepseek_v2.py).
    offset = 1 if "decoder_sparse_step" in text else 0
    shared = _optional(text, "shared_expert_intermediate_size") or width * (_optional(text, "n_shared_experts") or 0)
    return MoE(
        experts=experts,
        per_token=_number(text, "num_experts_per_tok"),
        intermediate=width,
        layers=frozenset(i for i in range(layers) if i >= first and i not in dense and (i + offset) % step == 0),
        shared_intermediate=shared,
        gated_sharing=model_type == "qwen2_moe",
        correction_bias=text.get("topk_method") == "noaux_tc" or model_type in {"deepseek_v3", "kimi_k2"},
    )
