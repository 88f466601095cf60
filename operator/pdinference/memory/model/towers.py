"""The vision towers of models with a vision part: their sizes, in elements, from `vision_config`.

Source: models/*/modeling_*.py of transformers; `tests/memory/model/test_towers.py` counts the parameters of
each class. vLLM shards the linear layers of a tower over the ranks, as it does those of the language model
(`mm_encoder_tp_mode`: weights, its default), and has a tower on each pipeline stage. Other towers are estimated.
"""

from collections.abc import Callable, Mapping

from pdinference.memory.model.config import Config, checked
from pdinference.memory.model.tower import AUDIO, VISION, Sizes, Tower, TowerMembers
from pdinference.memory.model.usual_towers import usual_audio, usual_vision


def towers_of(model_type: str, config: Config, hidden: int, merge: int | None) -> Tower | None:
    """The towers of a model together; None where it has none, or a member of one is missing or does not fit.

    Args:
        model_type: Of the whole model.
        config: The whole config.json, which is untrusted.
        hidden: The hidden size of the language model.
        merge: Patches of each side that become one, if the whole config.json says so.
    """
    formulas = {VISION: _TOWERS.get(model_type, usual_vision), AUDIO: usual_audio}
    found = [_tower(formulas[name], config[name], hidden, merge) for name in formulas if config.get(name)]
    known = [tower for tower in found if tower is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(found) else None


def _tower(formula: Callable[[Sizes], Tower], config: object, hidden: int, merge: int | None) -> Tower | None:
    found = checked(TowerMembers, config) if isinstance(config, Mapping) else None
    try:
        return None if found is None or found.unfit else formula(Sizes(found, hidden, merge))
    except LookupError:
        return None


def _column(outputs: int, inputs: int, *, bias: bool = True) -> Tower:
    """A linear layer whose outputs are shared."""
    return Tower(outputs * inputs + (outputs if bias else 0))


def _row(outputs: int, inputs: int, *, bias: bool = True) -> Tower:
    """A linear layer whose inputs are shared."""
    return Tower(outputs * inputs, outputs if bias else 0)


def _block(width: int, inner: int) -> Tower:
    """A layer of a plain transformer, with biases and two norms with biases."""
    attention = _column(3 * width, width) + _row(width, width)
    return attention + _column(inner, width) + _row(width, inner) + Tower(whole=4 * width)


_LARGEST_IMAGE = 16384 * 4
"""Patches of the largest image of Qwen-VL: 16,384 tokens of four patches each. vLLM logs `Encoder cache will be
initialized with a budget of 16384 tokens, and profiled with 1 image items of the maximum feature size`."""


def _largest_image(sizes: Sizes, width: int, inner: int) -> Tower:
    """What the encoder holds at once: the pixels, four times the width and twice the width of the feed-forward part.

    The four were set by one start of Qwen3.5-4B (vLLM 0.22), and checked with one of Qwen3.8-27B (0.28).
    """
    pixels = sizes.of("in_channels", "in_chans", default=3) * sizes.of("temporal_patch_size", default=2)
    pixels *= sizes.of("patch_size", default=16) ** 2
    return Tower(image_elements=_LARGEST_IMAGE * (4 * width + 2 * inner + pixels))


def _merger(sizes: Sizes, width: int, outputs: int) -> Tower:
    """Makes one of several patches."""
    merged = width * sizes.of("spatial_merge_size", default=2) ** 2
    return _column(merged, merged) + _row(outputs, merged)


def _qwen2(sizes: Sizes) -> Tower:
    depth, width = sizes.of("depth", default=32), sizes.of("embed_dim", default=1280)
    block = _block(width, width * sizes.of("mlp_ratio", default=4))
    patches = _patches(sizes, width, temporal=2, patch=14)
    image = _largest_image(sizes, width, width * sizes.of("mlp_ratio", default=4))
    return (
        block.times(depth) + _merger(sizes, width, sizes.of("hidden_size")) + Tower(whole=patches + 2 * width) + image
    )


def _qwen2_5(sizes: Sizes) -> Tower:
    depth, width = sizes.of("depth", default=32), sizes.of("hidden_size", default=3584)
    inner = sizes.of("intermediate_size", default=3420)
    attention = _column(3 * width, width) + _row(width, width)
    block = attention + _column(inner, width).times(2) + _row(width, inner) + Tower(whole=2 * width)
    merger = _merger(sizes, width, sizes.of("out_hidden_size", default=3584))
    patches = Tower(whole=_patches(sizes, width, temporal=2, patch=14) + width)
    return block.times(depth) + merger + patches + _largest_image(sizes, width, 2 * inner)


def _qwen3(sizes: Sizes) -> Tower:
    depth, width = sizes.of("depth", default=27), sizes.of("hidden_size", default=1152)
    block = _block(width, sizes.of("intermediate_size", default=4304))
    merger = _merger(sizes, width, sizes.of("out_hidden_size", default=3584))
    merged = width * sizes.of("spatial_merge_size", default=2) ** 2
    deep = (merger + Tower(whole=2 * merged)).times(len(sizes.members.values.get("deepstack_visual_indexes") or ()))
    patches = _patches(sizes, width, temporal=2, patch=16) + width
    positions = sizes.of("num_position_embeddings", default=2304) * width
    image = _largest_image(sizes, width, sizes.of("intermediate_size", default=4304))
    return block.times(depth) + merger + deep + Tower(whole=patches + positions + 2 * width) + image


def _siglip(sizes: Sizes) -> Tower:
    """Gemma 3's SigLIP, without the pooling head, and the projection into the language model."""
    depth, width = sizes.of("num_hidden_layers", default=12), sizes.of("hidden_size", default=768)
    block = _block(width, sizes.of("intermediate_size", default=3072))
    positions = (sizes.of("image_size", default=224) // sizes.of("patch_size", default=16)) ** 2 * width
    patches = _patches(sizes, width, temporal=1, patch=16) + width
    projection = width * sizes.hidden + width
    return block.times(depth) + Tower(whole=patches + positions + 2 * width + projection)


def _pixtral(sizes: Sizes) -> Tower:
    depth, width = sizes.of("num_hidden_layers", default=24), sizes.of("hidden_size", default=1024)
    inner = sizes.of("intermediate_size", default=4096)
    block = Tower(4 * width * width + 3 * width * inner, 2 * width)
    patches = _patches(sizes, width, temporal=1, patch=16)
    merger = (sizes.merge or 2) ** 2 * width * width
    projection = Tower(sizes.hidden * width + sizes.hidden**2)
    return block.times(depth) + projection + Tower(whole=patches + 2 * width + merger)


def _llama4(sizes: Sizes) -> Tower:
    depth, width = sizes.of("num_hidden_layers", default=34), sizes.of("hidden_size", default=768)
    inner = sizes.of("intermediate_size", default=5632)
    patch = sizes.of("patch_size", default=14)
    positions = ((sizes.of("image_size", default=448) // patch) ** 2 + 2) * width  # and the class, with its position
    outputs = sizes.of("projector_output_dim", default=4096)
    adapter = inner * sizes.of("projector_input_dim", default=4096) + outputs * outputs
    projection = sizes.of("vision_output_dim", default=7680) * sizes.hidden
    linear = Tower(_patches(sizes, width, temporal=1, patch=14) + adapter + projection)
    return _block(width, inner).times(depth) + linear + Tower(whole=positions + 4 * width)


def _glm4v(sizes: Sizes) -> Tower:
    depth, width = sizes.of("depth", default=24), sizes.of("hidden_size", default=1536)
    inner, outputs = sizes.of("intermediate_size", default=13696), sizes.of("out_hidden_size", default=4096)
    block = Tower(4 * width * width + 3 * width * outputs, 2 * width)
    positions = (sizes.of("image_size", default=336) // sizes.of("patch_size", default=14)) ** 2 * width
    patches = _patches(sizes, width, temporal=2, patch=14) + width
    smaller = outputs * (width * sizes.of("spatial_merge_size", default=2) ** 2 + 1)
    merger = Tower(outputs * outputs + 3 * outputs * inner, 2 * outputs)
    return block.times(depth) + merger + Tower(whole=patches + positions + smaller + 2 * width)


def _gemma4(sizes: Sizes) -> Tower:
    """Gemma 4's tower, which is whole on each rank (models/gemma4_mm.py of vLLM)."""
    depth, width = sizes.of("num_hidden_layers", default=16), sizes.of("hidden_size", default=768)
    head_dim = sizes.of("head_dim", default=64)
    attention = 4 * width * sizes.of("num_attention_heads", default=12) * head_dim + 2 * head_dim
    block = attention + 3 * width * sizes.of("intermediate_size", default=3072) + 4 * width
    positions = 2 * sizes.of("position_embedding_size", default=10240) * width
    return Tower(whole=depth * block + positions + _patches(sizes, width, temporal=1, patch=16) + width * sizes.hidden)


def _moonvit(sizes: Sizes) -> Tower:
    """Kimi K2.5's MoonViT and its projector, which is whole on each rank (models/kimi_k25_vit.py of vLLM)."""
    depth, width = sizes.of("num_hidden_layers", default=27), sizes.of("hidden_size", default=1152)
    block = _block(width, sizes.of("intermediate_size", default=4304))
    positions = sizes.of("pos_emb_height", default=64) * sizes.of("pos_emb_width", default=64) * width
    patches = _patches(sizes, width, temporal=1, patch=14) + width
    rows, columns = sizes.members.values.get("merge_kernel_size") or (2, 2)
    merged = width * rows * columns
    projector = merged * merged + merged + sizes.hidden * merged + sizes.hidden
    return block.times(depth) + Tower(whole=positions + patches + 4 * width + projector)


def _patches(sizes: Sizes, width: int, *, temporal: int, patch: int) -> int:
    """Elements of the convolution over patches of an image, without bias."""
    channels = sizes.of("in_channels", "in_chans", "num_channels", default=3)
    times = sizes.of("temporal_patch_size", default=temporal) if temporal > 1 else 1
    return int(channels * times * sizes.of("patch_size", default=patch) ** 2 * width)


_TOWERS: Mapping[str, Callable[[Sizes], Tower]] = {
    "gemma3": _siglip,
    "gemma4": _gemma4,
    "glm46v": _glm4v,
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v,
    "kimi_k25": _moonvit,
    "llama4": _llama4,
    "mistral3": _pixtral,
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "qwen3_5": _qwen3,
    "qwen3_5_moe": _qwen3,
}
"""Formulas by `model_type` of the whole model."""
