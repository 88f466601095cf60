"""The members of a `config.json` that are read, with types and ranges; the file is untrusted.

A member that does not fit is unknown. It is never computed with, and no plan depends on a default in its place.

Tests: tests/memory/test_known_facts.py, tests/memory/test_newer.py, tests/checks/test_memory.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from pdinference.api.words import sentence

Config = Mapping[str, Any]

INTERMEDIATE = ("intermediate_size", "ffn_dim", "n_inner")
"""Names of the width of the feed-forward part."""
KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
"""Where vLLM looks for the number of KV heads (vllm/transformers_utils/model_arch_config_convertor.py)."""
RECURRENT_STATE = (
    "mamba_d_state", "ssm_state_size", "linear_num_value_heads", "linear_attn_config", "attn_type_list",
)  # fmt: skip
"""Members of models with layers that keep a state instead of a KV cache: Mamba, linear attention."""
RECURRENT_LAYERS = frozenset({"conv", "linear_attention", "mamba", "M"})
"""The names of such layers in `layer_types` and `layers_block_type`, and the letter in `hybrid_override_pattern`."""
OTHER_CACHES = (
    "attention_other_setting", "block_configs", "compress_ratios", "hybrid_layer_pattern", "index_head_dim",
    "interleaved_sliding_window", "layer_group_size", "loop_num", "sparse_attention_config", "swa_head_dim",
    "zero_expert_num",
)  # fmt: skip
"""Members of models that keep something else than a plain KV cache: an index of sparse attention, layers with other
heads or windows (DeciLM, PLaMo 3), layers with linear attention (Ling 2.5), or a KV cache for each loop (IQuest)."""
MORE = ("vision_config", "audio_config")
STRETCHED = ("rope_scaling", "rope_parameters")
"""Members that indicate more tokens than max_position_embeddings."""
PRESENCE_KEYS = frozenset({*RECURRENT_STATE, *OTHER_CACHES, *MORE, *STRETCHED})
"""Members that count only by their presence."""
NESTED = ("text_config", "llm_config", "language_config")
"""Members with the config of the language model, if the model has several parts."""
QUANTIZATION = "quantization_config"

MOST_LAYERS = 512
_MOST = 2**31

Layers = Annotated[int, Field(ge=-1, le=MOST_LAYERS)] | None
"""A number of layers, or the index of one; -1 in some files where there is none."""
Size = Annotated[int, Field(ge=-1, le=_MOST)] | None
"""Any other number; the reader checks that it is positive where it must be."""
Switch = bool | None
Name = Annotated[str, Field(max_length=128)] | None
_BOUNDED = Field(max_length=MOST_LAYERS, fail_fast=True)
LayerIndexes = Annotated[list[Annotated[int, Field(ge=0, le=MOST_LAYERS)]], _BOUNDED] | None
Heads = Annotated[list[Annotated[int, Field(ge=1, le=_MOST)]], _BOUNDED] | None
"""Of each layer."""
LayerTypes = Annotated[list[Annotated[str, Field(max_length=64)]], _BOUNDED] | None
LayerLetters = Annotated[str, Field(max_length=MOST_LAYERS)] | None
"""A letter for each layer."""
Automatic = Annotated[int, Field(ge=-1, le=_MOST)] | Literal["auto"] | None
"""A number, or `auto` for the one that follows from others."""
Gating = bool | Annotated[str, Field(max_length=64)] | None
"""Whether there is a gate, or for what it has a number."""
Pattern = Annotated[int, Field(ge=0, le=MOST_LAYERS)] | Annotated[str, Field(max_length=64)] | None


class StrictModel(BaseModel):
    """A part of an untrusted file, validated strictly: 1 is not true, "2" is not a number."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=())


class LayerConfig(StrictModel):
    """What a layer has instead of the usual numbers, as transformers 5 writes it."""

    head_dim: Size = None
    num_key_value_heads: Size = None


PerLayer = (
    Annotated[dict[Annotated[str, Field(max_length=64)], LayerConfig], Field(max_length=MOST_LAYERS, min_length=1)]
    | None
)
"""By the index of the layer."""


class LanguageModel(StrictModel):
    """The members of a language model that are read."""

    model_type: Name = None
    dtype: Name = None
    torch_dtype: Name = None
    topk_method: Name = None

    num_hidden_layers: Layers = None
    n_layer: Layers = None
    n_layers: Layers = None
    num_layers: Layers = None
    max_window_layers: Size = None  # some files have more than there are layers
    moe_layer_start_index: Layers = None
    moe_layer_end_index: Layers = None
    moe_layer_interval: Layers = None
    moe_layer_freq: Layers | LayerIndexes = None
    hybrid_layer_pattern: LayerIndexes = None
    decoder_sparse_step: Layers = None
    first_k_dense_replace: Layers = None
    mlp_only_layers: LayerIndexes = None
    mlp_layer_types: LayerTypes = None
    layer_types: LayerTypes = None
    layers_block_type: LayerTypes = None
    hybrid_override_pattern: LayerLetters = None
    index_topk_pattern: LayerLetters = None
    sliding_window_pattern: Pattern = None
    full_attention_interval: Layers = None
    full_attn_idxs: LayerIndexes = None
    attn_layer_period: Layers = None
    attn_layer_offset: Layers = None
    expert_layer_period: Layers = None
    expert_layer_offset: Layers = None
    interleave_moe_layer_step: Layers = None
    no_rope_layers: LayerIndexes = None
    no_rope_layer_interval: Layers = None
    num_dense_layers: Layers = None
    num_kv_shared_layers: Layers = None
    num_nextn_predict_layers: Layers = None
    mtp_num_hidden_layers: Layers = None
    index_topk_freq: Layers = None
    index_skip_topk_offset: Layers = None

    hidden_size: Size = None
    n_embd: Size = None
    n_embed: Size = None
    d_model: Size = None
    word_embed_proj_dim: Size = None
    intermediate_size: Size = None
    intermediate_size_mlp: Size = None
    shared_intermediate_size: Size = None
    block_ff_dim: Size = None
    ffn_dim: Size = None
    ffn_hidden_size: Size = None
    n_inner: Size = None
    vocab_size: Size = None
    padded_vocab_size: Size = None
    max_position_embeddings: Size = None
    n_positions: Size = None
    max_seq_len: Size = None
    seq_length: Size = None
    model_max_length: Size = None
    max_sequence_length: Size = None
    max_seq_length: Size = None
    seq_len: Size = None
    sliding_window: Size = None
    attention_chunk_size: Size = None
    spatial_merge_size: Size = None
    downsample_ratio: Annotated[float, Field(ge=1 / 64, le=1)] | None = None
    hidden_size_per_layer_input: Size = None
    vocab_size_per_layer_input: Size = None

    num_attention_heads: Size = None
    n_head: Size = None
    n_heads: Size = None
    num_attention_heads_per_layer: Heads = None
    num_key_value_heads: Size = None
    n_head_kv: Size = None
    num_kv_heads: Size = None
    multi_query_group_num: Size = None
    head_dim: Size = None
    per_layer_config: PerLayer = None
    global_head_dim: Size = None
    num_global_key_value_heads: Size = None
    num_ln_in_parallel_attn: Size = None
    quantization_bit: Size = None
    kv_lora_rank: Size = None
    q_lora_rank: Size = None
    qk_nope_head_dim: Size = None
    qk_rope_head_dim: Size = None
    v_head_dim: Size = None
    swa_num_attention_heads: Size = None
    swa_num_key_value_heads: Size = None
    swa_head_dim: Size = None
    swa_v_head_dim: Size = None
    index_head_dim: Size = None
    index_n_heads: Size = None

    linear_num_key_heads: Size = None
    linear_num_value_heads: Size = None
    linear_key_head_dim: Size = None
    linear_value_head_dim: Size = None
    linear_conv_kernel_dim: Size = None
    mamba_d_state: Size = None
    mamba_d_conv: Size = None
    mamba_d_ssm: Size = None
    mamba_d_head: Automatic = None
    mamba_dt_rank: Automatic = None
    mamba_expand: Size = None
    mamba_n_heads: Size = None
    mamba_n_groups: Size = None
    mamba_num_heads: Size = None
    mamba_head_dim: Size = None
    mamba_ssm_cache_dtype: Name = None
    mamba_ssm_dtype: Name = None
    ssm_state_size: Size = None
    conv_kernel: Size = None
    n_groups: Size = None
    conv_L_cache: Size = None  # noqa: N815 - the file's name
    conv_dim: Size = None
    block_multiple_of: Size = None

    n_routed_experts: Size = None
    num_local_experts: Size = None
    num_experts: Size = None
    moe_num_experts: Size = None
    num_experts_per_tok: Size = None
    num_experts_per_token: Size = None
    moe_topk: Size = None
    moe_k: Size = None
    top_k_experts: Size = None
    moe_router_dtype: Name = None
    n_shared_experts: Size = None
    num_shared_experts: Size = None
    moe_num_shared_experts: Size = None
    moe_latent_size: Size = None
    moe_shared_expert_intermediate_size: Size = None
    expert_hidden_dim: Size = None
    expert_intermediate_size: Size = None
    moe_intermediate_size: Size = None
    shared_expert_intermediate_size: Size = None

    add_bias_linear: Switch = None
    add_swa_attention_sink_bias: Switch = None
    add_cross_attention: Switch = None
    add_qkv_bias: Switch = None
    attention_bias: Switch = None
    attention_k_eq_v: Switch = None
    attn_output_gate: Switch = None
    block_auto_adjust_ff_dim: Switch = None
    conv_bias: Switch = None
    enable_moe_block: Switch = None
    gating: Gating = None
    mamba_conv_bias: Switch = None
    mamba_proj_bias: Switch = None
    mamba_rms_norm: Switch = None
    attention_out_bias: Switch = None
    bias: Switch = None
    enable_bias: Switch = None
    lm_head_bias: Switch = None
    mlp_bias: Switch = None
    multi_query: Switch = None
    multi_query_attention: Switch = None
    new_decoder_architecture: Switch = None
    no_bias: Switch = None
    parallel_attn: Switch = None
    position_encoding_2d: Switch = None
    post_layer_norm: Switch = None
    qk_layernorm: Switch = None
    qk_norm: Switch = None
    qkv_bias: Switch = None
    rmsnorm: Switch = None
    tie_embedding: Switch = None
    tie_word_embeddings: Switch = None
    use_bias: Switch = None
    use_conv_bias: Switch = None
    use_double_wide_mlp: Switch = None
    use_expert_bias: Switch = None
    use_parallel_residual: Switch = None
    use_qk_norm: Switch = None
    use_qkv_bias: Switch = None
    use_sliding_window: Switch = None


CONFIG_KEYS = frozenset(LanguageModel.model_fields)
"""The members of a language model that are read here; a status keeps only these."""


class UnusableConfigError(ValueError):
    """A config.json lacks what every plan needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The valid members of an untrusted object.

    Attributes:
        values: The valid members that are read, nulls included.
        unfit: The invalid members, each with its error.
    """

    values: Config
    unfit: Mapping[str, str] = field(default_factory=dict)

    def optional(self, *names: str) -> int | None:
        """The first of some members that is given, where it is a positive integer."""
        value = next((self.values[name] for name in names if self.values.get(name) is not None), None)
        return value if isinstance(value, int) and value > 0 else None

    def number(self, *names: str) -> int:
        """The first of some members that is given.

        Raises:
            UnusableConfigError: None is, or it is no positive integer.
        """
        value = self.optional(*names)
        if value is None:
            reason = next((f" ({self.unfit[name]})" for name in names if name in self.unfit), "")
            raise UnusableConfigError(f"config.json has no usable {names[0]}; it has to be a positive integer{reason}.")
        return value


def checked(model: type[StrictModel], given: Config) -> Checked:
    """Validate the members that a model declares; others are ignored."""
    names = [info.alias or name for name, info in model.model_fields.items()]
    members = {name: given[name] for name in names if name in given}
    try:
        model.model_validate(members)
    except ValidationError as error:
        unfit = {str(details["loc"][0]): _reason(details) for details in error.errors(include_url=False)}
        return Checked({name: value for name, value in members.items() if name not in unfit}, unfit)
    return Checked(members)


def language_model(config: Config) -> Config:
    """The language model's part of a config; the config itself if it has no parts."""
    nested = next((config[name] for name in NESTED if config.get(name)), None)
    return nested if isinstance(nested, Mapping) else config


def _reason(details: ErrorDetails) -> str:
    return f"{details['loc'][0]}: {sentence(details)}"
