"""Reads a model's `config.json` into one form for all architectures.

Tests: tests/memory/test_newer.py, tests/memory/weights/test_weights.py, tests/memory/test_plan.py
"""

from collections.abc import Mapping
from typing import Literal

from pdinference.memory.model.architectures import ARCHITECTURES, LAST_VERSIONS, UNKNOWN, Flag, Traits
from pdinference.memory.model.config import (
    INTERMEDIATE,
    KV_HEADS,
    MORE,
    NESTED,
    OTHER_CACHES,
    QUANTIZATION,
    RECURRENT_LAYERS,
    RECURRENT_STATE,
    STRETCHED,
    Checked,
    Config,
    LanguageModel,
    UnusableConfigError,
    checked,
    language_model,
)
from pdinference.memory.model.experts import experts_of
from pdinference.memory.model.mixers import Mixers, mixers_of
from pdinference.memory.model.quantization import Quantization, quantization_of
from pdinference.memory.model.shape import MLA, Indexer, ModelFacts, PerLayerInput
from pdinference.memory.model.towers import towers_of
from pdinference.memory.model.windows import WINDOW, windows_of

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_LISTS = ("hybrid_override_pattern", "layers_block_type")
_MAX_LENGTH = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "max_seq_length",
    "seq_len",
)  # fmt: skip
_DTYPES = ("dtype", "torch_dtype")
_ATTENTION_ALONE = "minimax_m2"
"""Its attn_type_list, which other MiniMax models have for linear attention, has attention in every layer."""
_MERGE = "spatial_merge_size"
_MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
"""Members with the layers that propose tokens. Of MiMo-V2, vLLM has one (vllm/model_executor/models/mimo_v2_mtp.py)."""


def model_facts(config: Config) -> ModelFacts:
    """Read a `config.json`.

    Args:
        config: The file's content, which is untrusted.

    Raises:
        UnusableConfigError: The number of layers, heads or the hidden size is missing or no number, or no model has so
            many.
    """
    whole, part = checked(LanguageModel, config), language_model(config)
    text = whole if part is config else checked(LanguageModel, part)
    model_type = text.values.get("model_type") or whole.values.get("model_type") or ""
    traits = ARCHITECTURES.get(model_type, UNKNOWN)
    given = {key: value for key, value in text.values.items() if value is not None or key == WINDOW}
    text = _usual_names(traits, Checked({**traits.defaults, **_of_the_whole(whole), **given}, text.unfit))
    values = text.values
    layers = _layers(text)
    hidden = text.number("hidden_size", "n_embd", "d_model")
    heads = text.number("num_attention_heads", "n_head", "n_heads")
    kv_heads = _kv_heads(traits, text, heads)
    head_dim = text.optional("head_dim") or hidden // heads
    if head_dim < 1:
        raise UnusableConfigError(f"config.json has {heads} attention heads for a hidden_size of {hidden}.")
    quantization = quantization_of(config.get(QUANTIZATION) or part.get(QUANTIZATION))
    mixers = mixers_of(traits, text, layers)
    recurrent = (
        mixers.state is not None or mixers.unread or (not traits.state and _is_recurrent(model_type, part, values))
    )
    more = tuple(key for key in MORE if config.get(key))
    full_kv_heads, full_head_dim = _full_heads(traits, text, kv_heads, head_dim)
    windows = windows_of(traits, text, layers, mixers.attention)
    if traits.window_heads:
        kv_heads = text.optional("swa_num_key_value_heads") or kv_heads
    sharing = text.optional("num_kv_shared_layers") or 0
    if not _keeps_something(mixers, layers - sharing):
        raise UnusableConfigError("config.json describes a model of which no layer has a KV cache or a state.")
    return ModelFacts(
        model_type=model_type,
        last_version=LAST_VERSIONS.get(model_type, ""),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=_width(traits, text, hidden),
        vocab=text.number("vocab_size"),
        tied_embeddings=bool(values.get("tie_embedding", values.get("tie_word_embeddings"))),
        qkv_bias=_is_set(values, traits.qkv_bias),
        output_bias=_is_set(values, traits.output_bias),
        mlp_bias=_is_set(values, traits.mlp_bias),
        head_bias=traits.head_bias,
        gated_mlp=traits.gated,
        packed_qkv=bool(traits.packed),
        packed_mlp=traits.packed == "all",
        on_all_stages=frozenset(traits.on_all_stages),
        embedding_norm=traits.embedding_norm,
        norms_per_layer=_norms(traits, text),
        norm_elements=hidden * (2 if traits.norm_bias else 1),
        qk_norm_elements=_qk_norm_elements(traits, values, heads + kv_heads, head_dim),
        qk_norm_shared=traits.qk_norm == "rank",
        position_elements=_positions(traits, text) * hidden,
        windows=windows,
        chunked=traits.chunked,
        attention=mixers.attention,
        full_kv_heads=full_kv_heads,
        full_head_dim=full_head_dim,
        own_kv=max(0, layers - sharing),
        wide_mlp=bool(sharing and values.get("use_double_wide_mlp")),
        output_gate=_is_set(values, traits.output_gate),
        layer_heads=_layer_heads(traits, text, windows, heads),
        separate_gate=_separate_gate(traits, values),
        sinks=traits.sinks,
        window_sinks=traits.window_heads and bool(values.get("add_swa_attention_sink_bias")),
        value_dim=(text.optional("v_head_dim") if traits.window_heads else None) or 0,
        state=mixers.state,
        state_dtype=values.get("mamba_ssm_dtype") or values.get("mamba_ssm_cache_dtype") or traits.state_dtype,
        feed_forward=mixers.feed_forward,
        per_layer_input=_per_layer_input(traits, text),
        mtp_layers=(not traits.window_heads and text.optional(*_MTP)) or 1,
        max_length=_max_length(text),
        stretched=any(each.get(key) for each in (config, part) for key in STRETCHED),
        dtype=next((each[key] for each in (values, whole.values) for key in _DTYPES if each.get(key)), None),
        mla=_mla(text),
        indexer=_indexer(text, layers) if traits.indexed else None,
        moe=experts_of(traits, text, layers, mixers.experts),
        quantization=quantization,
        has_more=more,
        tower=towers_of(whole.values.get("model_type") or "", config, hidden, _merge(whole)),
        recurrent=recurrent,
        other_state=(recurrent and mixers.state is None)
        or (not (traits.indexed or traits.window_heads) and any(part.get(key) for key in OTHER_CACHES))
        or _has_other_values(traits, text, head_dim),
        tensors_known=model_type in ARCHITECTURES
        and not any(values.get(member) for member in traits.unless)
        and all(values.get(member) for member in traits.only_with)
        and values.get("word_embed_proj_dim", hidden) == hidden,
        unfit=_unfit(config, text, quantization),
    )


def _merge(whole: Checked) -> int | None:
    """Patches of each side of an image that become one, as the whole config.json says it."""
    ratio = whole.values.get("downsample_ratio")
    return whole.optional(_MERGE) or (round(1 / ratio) if ratio else None)


def _layers(text: Checked) -> int:
    """The number of layers; some files have only the list of what each one is (Nemotron-H)."""
    listed = next((names for member in _LISTS if (names := text.values.get(member))), None)
    return len(listed) if listed and not any(text.values.get(name) for name in _LAYERS) else text.number(*_LAYERS)


def _is_recurrent(model_type: str, part: Config, values: Config) -> bool:
    if model_type == _ATTENTION_ALONE:
        return False
    return any(part.get(key) for key in RECURRENT_STATE) or not RECURRENT_LAYERS.isdisjoint(
        values.get("layer_types") or ()
    )


def _has_other_values(traits: Traits, text: Checked, head_dim: int) -> bool:
    """Whether values have another size than keys in a way that is not known here.

    With latent attention that changes nothing. MiMo-V2 has the same sizes in all layers.
    """
    values = text.optional("v_head_dim")
    if traits.window_heads:
        sizes = text.optional("swa_head_dim") or head_dim, text.optional("swa_v_head_dim") or values
        return text.values.get("hybrid_layer_pattern") is None or sizes != (head_dim, values)
    return text.values.get("kv_lora_rank") is None and values is not None and values != head_dim


def _keeps_something(mixers: Mixers, first_sharing: int) -> bool:
    """Whether a layer has a KV cache of its own, or a state; the last layers may share those of earlier ones."""
    return mixers.state is not None or any(layer < first_sharing for layer in mixers.attention)


def _unfit(config: Config, text: Checked, quantization: Quantization | None) -> tuple[str, ...]:
    """The errors of members that every plan needs."""
    reasons = list(text.unfit.values())
    if any(config.get(key) and not isinstance(config[key], Mapping) for key in NESTED):
        reasons.append("text_config: This must be of type object.")
    if quantization is not None and not quantization.kv_known:
        reasons.append(quantization.unfit)
    return tuple(reasons)


def _usual_names(traits: Traits, text: Checked) -> Checked:
    """The same members under their usual names, if the architecture has other names."""
    usual = {own: name for name, own in traits.names.items()}
    values, unfit = (
        {key: value for key, value in members.items() if key not in usual}
        | {usual[key]: value for key, value in members.items() if key in usual}
        for members in (text.values, text.unfit)
    )
    return Checked(values, unfit)


def _max_length(text: Checked) -> int | None:
    """Source: `derive_max_model_len_and_key` in vllm/transformers_utils/model_arch_config_convertor.py."""
    stated = [length for key in _MAX_LENGTH if (length := text.optional(key)) is not None]
    return text.optional("model_max_length") or min(stated, default=None)


def _norms(traits: Traits, text: Checked) -> int:
    if not (traits.parallel_norms and text.values.get("parallel_attn")):
        return traits.norms
    stated = text.values.get("num_ln_in_parallel_attn")
    return 2 if stated == 2 or (stated is None and text.values.get("new_decoder_architecture")) else 1


def _kv_heads(traits: Traits, text: Checked, heads: int) -> int:
    if traits.grouped and not text.values.get(traits.grouped):
        return 1 if text.values.get("multi_query") else heads
    stated = next((text.values[key] for key in KV_HEADS if text.values.get(key) is not None), None)
    if stated is None:
        return 1 if text.values.get("multi_query") and not any(key in text.values for key in KV_HEADS) else heads
    if stated < 1:
        raise UnusableConfigError(f"config.json has {stated} KV heads; it has to be a positive integer.")
    return int(stated)


def _is_set(values: Config, flag: Flag) -> bool:
    if isinstance(flag, bool):
        return flag
    return any(values.get(member) for member in ((flag,) if isinstance(flag, str) else flag))


def _layer_heads(traits: Traits, text: Checked, windows: tuple[int | None, ...], heads: int) -> tuple[int, ...]:
    """The attention heads of each layer; empty where all have the same number."""
    layers = len(windows)
    listed = text.values.get("num_attention_heads_per_layer") or ()
    if traits.window_heads:
        sliding = text.optional("swa_num_attention_heads") or heads
        listed = [heads if window is None else sliding for window in windows]
    if listed and len(listed) < layers:
        raise UnusableConfigError(f"num_attention_heads_per_layer has {len(listed)} entries for {layers} layers.")
    return () if set(listed[:layers]) <= {heads} else tuple(listed[:layers])


def _separate_gate(traits: Traits, values: Config) -> Literal["", "element", "head"]:
    """Source: `LagunaAttention.__init__` in vllm/model_executor/models/laguna.py."""
    if traits.separate_gate != "gating":
        return traits.separate_gate
    gating = values.get("gating")
    if not gating:
        return ""
    return "head" if gating in (True, "per-head") else "element"


def _width(traits: Traits, text: Checked, hidden: int) -> int:
    """Width of the feed-forward part of a layer without experts."""
    own = (traits.dense_width,) if traits.dense_width else ()
    return (text.optional(*own, "block_ff_dim", *INTERMEDIATE) or 4 * hidden) // (2 if traits.halved_mlp else 1)


def _of_the_whole(whole: Checked) -> Config:
    """Members of the whole model that count where the language model's part is silent."""
    tied = whole.values.get("tie_word_embeddings")
    return {} if tied is None else {"tie_word_embeddings": tied}


def _full_heads(traits: Traits, text: Checked, kv_heads: int, head_dim: int) -> tuple[int, int]:
    """KV heads of layers that attend to everything, and the size of one (Gemma4TextConfig of transformers)."""
    if not traits.full_heads:
        return kv_heads, head_dim
    if listed := text.values.get("per_layer_config"):
        own = next(iter(listed.values()))
        return own.get("num_key_value_heads") or kv_heads, own.get("head_dim") or head_dim
    grouped = text.values.get("attention_k_eq_v") and text.optional("num_global_key_value_heads")
    return grouped or kv_heads, text.number("global_head_dim")


def _per_layer_input(traits: Traits, text: Checked) -> PerLayerInput | None:
    width = text.optional("hidden_size_per_layer_input") if traits.full_heads else None
    return PerLayerInput(width, text.number("vocab_size_per_layer_input", "vocab_size")) if width else None


def _indexer(text: Checked, layers: int) -> Indexer:
    """The index of sparse attention, and which layers have one.

    Source: `DeepseekV2MLAAttention.__init__` in vllm/model_executor/models/deepseek_v2.py.
    """
    values = text.values
    step, offset = values.get("index_topk_freq") or 1, values.get("index_skip_topk_offset")
    first = 2 if offset is None else offset
    pattern = values.get("index_topk_pattern")
    if pattern is None:
        own = frozenset(layer for layer in range(layers) if max(layer - first + 1, 0) % step == 0)
    else:
        own = frozenset(layer for layer in range(layers) if pattern[layer : layer + 1] != "S")
    return Indexer(own, text.number("index_n_heads"), text.number("index_head_dim"))


def _qk_norm_elements(traits: Traits, values: Config, heads: int, head_dim: int) -> int:
    if not traits.qk_norm or (traits.qk_norm_switch and not values.get(traits.qk_norm_switch)):
        return 0
    return (2 if traits.qk_norm == "head" else heads) * head_dim


def _positions(traits: Traits, text: Checked) -> int:
    if traits.positions is None:
        return 0
    member, more = traits.positions
    return text.number(member) + more


def _mla(text: Checked) -> MLA | None:
    if text.values.get("kv_lora_rank") is None:
        return None
    return MLA(
        kv_lora_rank=text.number("kv_lora_rank"),
        q_lora_rank=text.optional("q_lora_rank"),
        qk_nope_head_dim=text.number("qk_nope_head_dim"),
        qk_rope_head_dim=text.number("qk_rope_head_dim"),
        v_head_dim=text.number("v_head_dim"),
    )
