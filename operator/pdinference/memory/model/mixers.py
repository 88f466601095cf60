"""Reads from a `config.json` which layers attend, which keep a state, and which have a feed-forward part.

Tests: tests/memory/test_newer.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pdinference.memory.model.architectures import Traits
from pdinference.memory.model.config import RECURRENT_LAYERS, Checked, UnusableConfigError
from pdinference.memory.model.state import DeltaNet, Mamba1, Mamba2, ShortConvolution, State

_FEED_FORWARD = frozenset({"-", "mlp"})
_EXPERTS = frozenset({"E", "moe"})
Kind = Literal["attention", "state", "mlp", "experts"]


@dataclass(frozen=True, slots=True)
class Mixers:
    """What each layer consists of, by the indexes of the layers.

    Attributes:
        attention: Layers that attend.
        state: Those that keep a state; None where no layer does.
        feed_forward: Those with a feed-forward part.
        experts: Those whose feed-forward part are experts; None: other members decide.
        unread: Whether layers keep something, and none was found that attends.
    """

    attention: frozenset[int]
    state: State | None
    feed_forward: frozenset[int]
    experts: frozenset[int] | None = None
    unread: bool = False


def mixers_of(traits: Traits, text: Checked, layers: int) -> Mixers:
    """What each layer consists of.

    Raises:
        UnusableConfigError: A number is missing, or the layers are listed for fewer layers than there are.
    """
    everything = frozenset(range(layers))
    if not traits.state:
        return Mixers(everything, None, everything)
    if traits.side_by_side:
        return Mixers(everything, _state(traits, text, everything), everything)
    kinds = list(_kinds(text, layers))
    attention, state, mlp, experts = (
        frozenset(index for index, kind in enumerate(kinds) if kind == wanted)
        for wanted in ("attention", "state", "mlp", "experts")
    )
    if not attention:  # vLLM's hybrid classes have some, so this is another model
        return Mixers(everything, None, everything, unread=True)
    kept = _state(traits, text, state) if state else None
    if traits.one_mixer:
        return Mixers(attention, kept, mlp | experts, experts)
    return Mixers(attention, kept, everything)


def _kinds(text: Checked, layers: int) -> Iterator[Kind]:
    """Each layer's kind: listed, or by the rule of the class (models/*/configuration_*.py of transformers)."""
    values = text.values
    members = ("hybrid_override_pattern", "layers_block_type", "layer_types")
    listed = next(((name, values[name]) for name in members if values.get(name)), None)
    if listed is not None:
        name, names = listed
        if len(names) < layers:
            raise UnusableConfigError(f"{name} has {len(names)} entries for {layers} layers.")
        yield from (_kind(each) for each in names[:layers])
    elif (attending := values.get("full_attn_idxs")) is not None:
        yield from ("attention" if index in attending else "state" for index in range(layers))
    else:
        period = text.optional("full_attention_interval", "attn_layer_period")
        offset = values.get("attn_layer_offset", (period or 0) - 1)
        yield from ("attention" if period and index % period == offset else "state" for index in range(layers))


def _kind(name: str) -> Kind:
    if name in RECURRENT_LAYERS:
        return "state"
    return "mlp" if name in _FEED_FORWARD else "experts" if name in _EXPERTS else "attention"


def _state(traits: Traits, text: Checked, layers: frozenset[int]) -> State:
    match traits.state:
        case "convolution":
            return _short_convolution(text, layers)
        case "mamba":
            return _mamba1(text, layers)
        case "mamba2":
            return _mamba2(traits, text, layers)
        case _:
            return DeltaNet(
                layers=layers,
                key_heads=text.number("linear_num_key_heads"),
                value_heads=text.number("linear_num_value_heads"),
                key_dim=text.number("linear_key_head_dim"),
                value_dim=text.number("linear_value_head_dim"),
                kernel=text.number("linear_conv_kernel_dim"),
            )


def _short_convolution(text: Checked, layers: frozenset[int]) -> ShortConvolution:
    width = text.optional("conv_dim") or text.number("hidden_size")
    return ShortConvolution(layers, width, text.number("conv_L_cache"), bool(text.values.get("conv_bias")))


def _mamba1(text: Checked, layers: frozenset[int]) -> Mamba1:
    hidden = text.number("hidden_size")
    rank = text.values.get("mamba_dt_rank")
    return Mamba1(
        layers=layers,
        width=text.number("mamba_expand") * hidden,
        state=text.number("mamba_d_state"),
        kernel=text.number("mamba_d_conv"),
        rank=-(-hidden // 16) if rank in (None, "auto") else text.number("mamba_dt_rank"),
        convolution_bias=bool(text.values.get("mamba_conv_bias")),
        bias=bool(text.values.get("mamba_proj_bias")),
    )


def _mamba2(traits: Traits, text: Checked, layers: frozenset[int]) -> Mamba2:
    heads = text.number("mamba_n_heads", "mamba_num_heads")
    stated = text.values.get("mamba_d_head")
    width = text.optional("mamba_d_ssm") or (text.optional("mamba_expand") or 0) * text.number("hidden_size")
    head_dim = text.optional("mamba_head_dim") or (stated if isinstance(stated, int) else width // heads)
    return Mamba2(
        layers=layers,
        width=width or heads * head_dim,
        heads=heads,
        head_dim=head_dim,
        state=text.number("mamba_d_state", "ssm_state_size"),
        groups=text.number("mamba_n_groups", "n_groups"),
        kernel=text.number("mamba_d_conv", "conv_kernel"),
        convolution_bias=bool(text.values.get("mamba_conv_bias", text.values.get("use_conv_bias"))),
        bias=bool(text.values.get("mamba_proj_bias", text.values.get("use_bias"))),
        norm=not traits.state_norm or bool(text.values.get(traits.state_norm)),
    )
