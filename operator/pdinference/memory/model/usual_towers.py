"""Towers whose class is not counted exactly: estimates from the members that nearly all of them have.

`tests/memory/model/test_usual_towers.py` compares them with classes of transformers in their published sizes.
"""

from typing import Final

from pdinference.memory.model.tower import Sizes, Tower

TOO_SMALL: Final = 0.4
"""By how much of an estimate a tower may be larger: most are within 0.15, and some have wide projectors."""
_GATED = frozenset({"pixtral", "silu", "swiglu"})
"""Types and activations of towers whose feed-forward part has a gate."""
_WIDTH = ("hidden_size", "embed_dim", "width", "d_model")
_DEPTH = ("num_hidden_layers", "depth", "layers", "encoder_layers", "conf_num_hidden_layers", "num_blocks")
_INNER = ("intermediate_size", "encoder_ffn_dim")
_WHISPER_KERNEL = 3


def usual_vision(sizes: Sizes) -> Tower:
    """A ViT: patches, positions, layers, and two linear layers into the language model."""
    width, inner = sizes.of(*_WIDTH), _inner(sizes)
    patch, channels = _side(sizes, "patch_size", 14), sizes.of("in_channels", "in_chans", "num_channels", default=3)
    positions = (_side(sizes, "image_size", 0) // patch) ** 2
    values = sizes.members.values
    gated = bool(values.get("use_swiglu_ffn")) or not _GATED.isdisjoint(
        {values.get("model_type"), values.get("hidden_act")}
    )
    block = 4 * width * width + (3 if gated else 2) * width * inner + 9 * width + inner
    merged = width * _merged(sizes)
    projector = merged * sizes.hidden + sizes.hidden**2
    whole = (channels * patch * patch + positions) * width
    return Tower(sizes.of(*_DEPTH) * block + projector, whole, estimated=True)


def usual_audio(sizes: Sizes) -> Tower:
    """Whisper's encoder, or a Conformer, and two linear layers into the language model; each rank has all of it."""
    width, depth, inner = sizes.of(*_WIDTH), sizes.of(*_DEPTH), _inner(sizes)
    if any(sizes.members.optional(name) for name in ("conv_kernel_size", "conf_conv_kernel_size")):
        # two feed-forward parts, attention with positions of its own, and a convolution between two linear layers
        layers = depth * (4 * width * inner + 8 * width * width)
    else:
        layers = depth * (4 * width * width + 2 * width * inner + 9 * width + inner)
    channels = sizes.of("num_mel_bins", default=128)
    before = _WHISPER_KERNEL * width * (channels + width) + sizes.of("max_source_positions", default=1500) * width
    return Tower(whole=layers + before + width * sizes.hidden + sizes.hidden**2, estimated=True)


def _inner(sizes: Sizes) -> int:
    """Width of the feed-forward part; four times the tower's unless it is stated."""
    stated = sizes.members.values.get("mlp_ratio") or 4
    ratio = stated if stated > 0 else 4
    return sizes.of(*_INNER, default=round(ratio * sizes.of(*_WIDTH)))


def _side(sizes: Sizes, name: str, default: int) -> int:
    """A size in pixels; of several sides the first."""
    value = sizes.members.values.get(name)
    return value[0] if isinstance(value, list) and value else sizes.of(name, default=default)


def _merged(sizes: Sizes) -> int:
    """Patches that become one before they are projected."""
    rows, columns = sizes.members.values.get("merge_kernel_size") or (0, 0)
    side = sizes.members.optional("spatial_merge_size") or sizes.merge or 1
    return rows * columns or side * side
