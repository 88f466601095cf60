"""The vision towers of models with a vision part: their sizes, in elements, from `vision_config`.

Source: models/*/modeling_*.py of transformers; `tests/planning/memory/model/test_towers.py` counts the parameters of
each class. vLLM shards the linear layers of a tower over the ranks, as it does those of the language model
(`mm_encoder_tp_mode`: weights, its default), and has a tower on each pipeline stage.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from pdinference.planning.memory.model.config import Checked, Size, StrictModel, checked

VISION = "vision_config"
"""The member of config.json with the tower."""
_MOST_MERGERS = 64
Side = Annotated[int, Field(ge=1, le=64)]


class VisionModel(StrictModel):
    """The members of a vision tower that are read."""

    depth: Size = None
    num_hidden_layers: Size = None
    hidden_size: Size = None
    embed_dim: Size = None
    intermediate_size: Size = None
    out_hidden_size: Size = None
    in_channels: Size = None
    in_chans: Size = None
    num_channels: Size = None
    image_size: Size = None
    patch_size: Size = None
    temporal_patch_size: Size = None
    spatial_merge_size: Size = None
    num_position_embeddings: Size = None
    mlp_ratio: Size = None
    projector_input_dim: Size = None
    projector_output_dim: Size = None
    vision_output_dim: Size = None
    num_attention_heads: Size = None
    head_dim: Size = None
    position_embedding_size: Size = None
    pos_emb_height: Size = None
    pos_emb_width: Size = None
    merge_kernel_size: Annotated[list[Side], Field(min_length=2, max_length=2)] | None = None
    deepstack_visual_indexes: Annotated[list[int], Field(max_length=_MOST_MERGERS)] | None = None


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision tower with its projector, or a part of one.

    Attributes:
        sharded: Elements that tensor-parallel ranks share.
        whole: Elements that each rank has.
        image_elements: Elements at the peak while an image of the largest size is encoded; 0 where that is not known.
    """

    sharded: int = 0
    whole: int = 0
    image_elements: int = 0

    def __add__(self, other: "Tower") -> "Tower":
        """Both parts."""
        return Tower(self.sharded + other.sharded, self.whole + other.whole, self.image_elements + other.image_elements)

    def times(self, number: int) -> "Tower":
        """The same part several times."""
        return Tower(self.sharded * number, self.whole * number, self.image_elements)

    def elements(self, tensor: int) -> int:
        """Elements on one rank."""
        return self.sharded // tensor + self.whole


def tower_of(model_type: str, config: object, hidden: int, merge: int | None) -> Tower | None:
    """The tower of a model; None where its class is not known here, or a member is missing or does not fit.

    Args:
        model_type: Of the whole model.
        config: `vision_config`, which is untrusted.
        hidden: The hidden size of the language model.
        merge: `spatial_merge_size` of the whole config.json, if it is there.
    """
    formula = _TOWERS.get(model_type)
    if formula is None or not isinstance(config, Mapping):
        return None
    found = checked(VisionModel, config)
    try:
        return None if found.unfit else formula(_Sizes(found, hidden, merge))
    except LookupError:
        return None


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The members of a tower; asking for one that is missing raises LookupError."""

    members: Checked
    hidden: int
    merge: int | None

    def of(self, *names: str, default: int | None = None) -> int:
        value = self.members.optional(*names) or default
        if value is None:
            raise LookupError(names[0])
        return value


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


def _largest_image(sizes: _Sizes, width: int, inner: int) -> Tower:
    """What the encoder holds at once: the pixels, four times the width and twice the width of the feed-forward part.

    The four were set by one start of Qwen3.5-4B (vLLM 0.22), and checked with one of Qwen3.8-27B (0.28).
    """
    pixels = sizes.of("in_channels", "in_chans", default=3) * sizes.of("temporal_patch_size", default=2)
    pixels *= sizes.of("patch_size", default=16) ** 2
    return Tower(image_elements=_LARGEST_IMAGE * (4 * width + 2 * inner + pixels))


def _merger(sizes: _Sizes, width: int, outputs: int) -> Tower:
    """Makes one of several patches."""
    merged = width * sizes.of("spatial_merge_size", default=2) ** 2
    return _column(merged, merged) + _row(outputs, merged)


def _qwen2(sizes: _Sizes) -> Tower:
    depth, width = sizes.of("depth", default=32), sizes.of("embed_dim", default=1280)
    block = _block(width, width * sizes.of("mlp_ratio", default=4))
    patches = _patches(sizes, width, temporal=2, patch=14)
    image = _largest_image(sizes, width, width * sizes.of("mlp_ratio", default=4))
    return (
        block.times(depth) + _merger(sizes, width, sizes.of("hidden_size")) + Tower(whole=patches + 2 * width) + image
    )


def _qwen2_5(sizes: _Sizes) -> Tower:
    depth, width = sizes.of("depth", default=32), sizes.of("hidden_size", default=3584)
    inner = sizes.of("intermediate_size", default=3420)
    attention = _column(3 * width, width) + _row(width, width)
    block = attention + _column(inner, width).times(2) + _row(width, inner) + Tower(whole=2 * width)
    merger = _merger(sizes, width, sizes.of("out_hidden_size", default=3584))
    patches = Tower(whole=_patches(sizes, width, temporal=2, patch=14) + width)
    return block.times(depth) + merger + patches + _largest_image(sizes, width, 2 * inner)


def _qwen3(sizes: _Sizes) -> Tower:
    depth, width = sizes.of("depth", default=27), sizes.of("hidden_size", default=1152)
    block = _block(width, sizes.of("intermediate_size", default=4304))
    merger = _merger(sizes, width, sizes.of("out_hidden_size", default=3584))
    merged = width * sizes.of("spatial_merge_size", default=2) ** 2
    deep = (merger + Tower(whole=2 * merged)).times(len(sizes.members.values.get("deepstack_visual_indexes") or ()))
    patches = _patches(sizes, width, temporal=2, patch=16) + width
    positions = sizes.of("num_position_embeddings", default=2304) * width
    image = _largest_image(sizes, width, sizes.of("intermediate_size", default=4304))
    return block.times(depth) + merger + deep + Tower(whole=patches + positions + 2 * width) + image


def _siglip(sizes: _Sizes) -> Tower:
    """Gemma 3's SigLIP, without the pooling head, and the projection into the language model."""
    depth, width = sizes.of("num_hidden_layers", default=12), sizes.of("hidden_size", default=768)
    block = _block(width, sizes.of("intermediate_size", default=3072))
    positions = (sizes.of("image_size", default=224) // sizes.of("patch_size", default=16)) ** 2 * width
    patches = _patches(sizes, width, temporal=1, patch=16) + width
    projection = width * sizes.hidden + width
    return block.times(depth) + Tower(whole=patches + positions + 2 * width + projection)


def _pixtral(sizes: _Sizes) -> Tower:
    depth, width = sizes.of("num_hidden_layers", default=24), sizes.of("hidden_size", default=1024)
    inner = sizes.of("intermediate_size", default=4096)
    block = Tower(4 * width * width + 3 * width * inner, 2 * width)
    patches = _patches(sizes, width, temporal=1, patch=16)
    merger = (sizes.merge or 2) ** 2 * width * width
    projection = Tower(sizes.hidden * width + sizes.hidden**2)
    return block.times(depth) + projection + Tower(whole=patches + 2 * width + merger)


def _llama4(sizes: _Sizes) -> Tower:
    depth, width = sizes.of("num_hidden_layers", default=34), sizes.of("hidden_size", default=768)
    inner = sizes.of("intermediate_size", default=5632)
    patch = sizes.of("patch_size", default=14)
    positions = ((sizes.of("image_size", default=448) // patch) ** 2 + 2) * width  # and the class, with its position
    outputs = sizes.of("projector_output_dim", default=4096)
    adapter = inner * sizes.of("projector_input_dim", default=4096) + outputs * outputs
    projection = sizes.of("vision_output_dim", default=7680) * sizes.hidden
    linear = Tower(_patches(sizes, width, temporal=1, patch=14) + adapter + projection)
    return _block(width, inner).times(depth) + linear + Tower(whole=positions + 4 * width)


def _glm4v(sizes: _Sizes) -> Tower:
    depth, width = sizes.of("depth", default=24), sizes.of("hidden_size", default=1536)
    inner, outputs = sizes.of("intermediate_size", default=13696), sizes.of("out_hidden_size", default=4096)
    block = Tower(4 * width * width + 3 * width * outputs, 2 * width)
    positions = (sizes.of("image_size", default=336) // sizes.of("patch_size", default=14)) ** 2 * width
    patches = _patches(sizes, width, temporal=2, patch=14) + width
    smaller = outputs * (width * sizes.of("spatial_merge_size", default=2) ** 2 + 1)
    merger = Tower(outputs * outputs + 3 * outputs * inner, 2 * outputs)
    return block.times(depth) + merger + Tower(whole=patches + positions + smaller + 2 * width)


def _gemma4(sizes: _Sizes) -> Tower:
    """Gemma 4's tower, which is whole on each rank (models/gemma4_mm.py of vLLM)."""
    depth, width = sizes.of("num_hidden_layers", default=16), sizes.of("hidden_size", default=768)
    head_dim = sizes.of("head_dim", default=64)
    attention = 4 * width * sizes.of("num_attention_heads", default=12) * head_dim + 2 * head_dim
    block = attention + 3 * width * sizes.of("intermediate_size", default=3072) + 4 * width
    positions = 2 * sizes.of("position_embedding_size", default=10240) * width
    return Tower(whole=depth * block + positions + _patches(sizes, width, temporal=1, patch=16) + width * sizes.hidden)


def _moonvit(sizes: _Sizes) -> Tower:
    """Kimi K2.5's MoonViT and its projector, which is whole on each rank (models/kimi_k25_vit.py of vLLM)."""
    depth, width = sizes.of("num_hidden_layers", default=27), sizes.of("hidden_size", default=1152)
    block = _block(width, sizes.of("intermediate_size", default=4304))
    positions = sizes.of("pos_emb_height", default=64) * sizes.of("pos_emb_width", default=64) * width
    patches = _patches(sizes, width, temporal=1, patch=14) + width
    rows, columns = sizes.members.values.get("merge_kernel_size") or (2, 2)
    merged = width * rows * columns
    projector = merged * merged + merged + sizes.hidden * merged + sizes.hidden
    return block.times(depth) + Tower(whole=positions + patches + 4 * width + projector)


def _patches(sizes: _Sizes, width: int, *, temporal: int, patch: int) -> int:
    """Elements of the convolution over patches of an image, without bias."""
    channels = sizes.of("in_channels", "in_chans", "num_channels", default=3)
    times = sizes.of("temporal_patch_size", default=temporal) if temporal > 1 else 1
    return int(channels * times * sizes.of("patch_size", default=patch) ** 2 * width)


_TOWERS: Mapping[str, Callable[[_Sizes], Tower]] = {
    "gemma3": _siglip,
    "gemma4": _gemma4,
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


def kept_vision(config: object) -> dict[str, Any] | Literal[True]:
    """The members of a `vision_config` that are read, so that they fit into a status; True where one does not fit."""
    found = checked(VisionModel, config) if isinstance(config, Mapping) else Checked({}, {VISION: ""})
    return True if found.unfit else VisionModel.model_validate(found.values).model_dump(exclude_none=True) or True
