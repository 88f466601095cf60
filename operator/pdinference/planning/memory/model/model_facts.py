"""Reads a model's `config.json` into one form for all architectures."""

from collections.abc import Mapping

from pdinference.planning.memory.model.architectures import ARCHITECTURES, LAST_VERSIONS, UNKNOWN, Flag, Traits
from pdinference.planning.memory.model.config import (
    INTERMEDIATE,
    KV_HEADS,
    MORE,
    NESTED,
    OTHER_STATE,
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
from pdinference.planning.memory.model.experts import experts_of
from pdinference.planning.memory.model.quantization import Quantization, quantization_of
from pdinference.planning.memory.model.shape import MLA, ModelFacts

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_MAX_LENGTH = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "max_seq_length",
    "seq_len",
)  # fmt: skip
_DTYPES = ("dtype", "torch_dtype")
_ATTENTION_ALONE = "minimax_m2"
"""Its attn_type_list, which other MiniMax models have for linear attention, has attention in every layer."""
_WINDOW = "sliding_window"
"""Null means that there is none; any other member that is null is one that is not given."""


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
    given = {key: value for key, value in text.values.items() if value is not None or key == _WINDOW}
    text = _usual_names(traits, Checked({**traits.defaults, **given}, text.unfit))
    values = text.values
    layers = text.number(*_LAYERS)
    hidden = text.number("hidden_size", "n_embd", "d_model")
    heads = text.number("num_attention_heads", "n_head", "n_heads")
    kv_heads = _kv_heads(traits, text, heads)
    head_dim = text.optional("head_dim") or hidden // heads
    if head_dim < 1:
        raise UnusableConfigError(f"config.json has {heads} attention heads for a hidden_size of {hidden}.")
    quantization = quantization_of(config.get(QUANTIZATION) or part.get(QUANTIZATION))
    recurrent = _is_recurrent(model_type, part, values)
    return ModelFacts(
        model_type=model_type,
        last_version=LAST_VERSIONS.get(model_type, ""),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=(text.optional(*INTERMEDIATE) or 4 * hidden) // (2 if traits.halved_mlp else 1),
        vocab=text.number("vocab_size"),
        tied_embeddings=bool(values.get("tie_word_embeddings")),
        qkv_bias=_is_set(values, traits.qkv_bias),
        output_bias=_is_set(values, traits.output_bias),
        mlp_bias=_is_set(values, traits.mlp_bias),
        head_bias=traits.head_bias,
        gated_mlp=traits.gated,
        packed_qkv=bool(traits.packed),
        packed_mlp=traits.packed == "all",
        on_all_stages=traits.on_all_stages,
        embedding_norm=traits.embedding_norm,
        norms_per_layer=_norms(traits, text),
        norm_elements=hidden * (2 if traits.norm_bias else 1),
        qk_norm_elements=_qk_norm_elements(traits, values, heads + kv_heads, head_dim),
        position_elements=_positions(traits, text) * hidden,
        windows=_windows(traits, text, layers),
        max_length=_max_length(text),
        stretched=any(each.get(key) for each in (config, part) for key in STRETCHED),
        dtype=next((each[key] for each in (values, whole.values) for key in _DTYPES if each.get(key)), None),
        mla=_mla(text),
        moe=experts_of(traits, text, layers),
        quantization=quantization,
        has_more=tuple(key for key in MORE if config.get(key)),
        recurrent=recurrent,
        other_state=recurrent or any(part.get(key) for key in OTHER_STATE),
        tensors_known=model_type in ARCHITECTURES
        and not any(values.get(member) for member in traits.unless)
        and all(values.get(member) for member in traits.only_with)
        and values.get("word_embed_proj_dim", hidden) == hidden,
        unfit=_unfit(config, text, quantization),
    )


def _is_recurrent(model_type: str, part: Config, values: Config) -> bool:
    if model_type == _ATTENTION_ALONE:
        return False
    return any(part.get(key) for key in RECURRENT_STATE) or not RECURRENT_LAYERS.isdisjoint(
        values.get("layer_types") or ()
    )


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


def _qk_norm_elements(traits: Traits, values: Config, heads: int, head_dim: int) -> int:
    if not traits.qk_norm or (traits.qk_norm_switch and not values.get(traits.qk_norm_switch)):
        return 0
    return (heads if traits.qk_norm == "all" else 2) * head_dim


def _positions(traits: Traits, text: Checked) -> int:
    if traits.positions is None:
        return 0
    member, more = traits.positions
    return text.number(member) + more


def _windows(traits: Traits, text: Checked, layers: int) -> tuple[int | None, ...]:
    """The window of each layer, as vLLM's models read it.

    Source: vllm/model_executor/models/{llama,gemma2,gemma3}.py (`layer_types`), and for a window without layer types
    vllm/model_executor/layers/attention/attention.py, which applies it to every layer.
    """
    window, values = text.optional(_WINDOW), text.values
    if window is None or (traits.window_switch and not values.get("use_sliding_window")):
        return (None,) * layers
    if kinds := values.get("layer_types"):
        if len(kinds) < layers:
            raise UnusableConfigError(f"layer_types has {len(kinds)} entries for {layers} layers.")
        return tuple(window if kind == "sliding_attention" else None for kind in kinds[:layers])
    pattern = _pattern(values.get("sliding_window_pattern")) or traits.sliding_every
    if pattern:
        return tuple(window if (index + 1) % pattern else None for index in range(layers))
    if traits.window_switch:
        stated = values.get("max_window_layers")
        first = layers if stated is None else stated
        return tuple(window if index >= first else None for index in range(layers))
    return (window,) * layers


def _pattern(value: int | str | None) -> int:
    """Of how many layers the last one attends to everything; EXAONE writes `LLLG` for 4."""
    return len(value) if isinstance(value, str) else value or 0


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
