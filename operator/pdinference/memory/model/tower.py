"""A vision or audio tower: the members of its config that are read, and its elements on a rank.

Tests: tests/memory/model/test_usual_towers.py, tests/memory/model/test_towers.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from pdinference.memory.model.config import Checked, Name, Size, StrictModel, Switch, checked

VISION, AUDIO = "vision_config", "audio_config"
"""The members of config.json with a tower."""
_MOST_MERGERS = 64
Side = Annotated[int, Field(ge=1, le=64)]


Sides = (
    Annotated[int, Field(ge=-1, le=2**31)] | Annotated[list[Annotated[int, Field(ge=1, le=2**16)]], Field(max_length=3)]
)
"""A size in pixels, or one of each side."""
Ratio = Annotated[int, Field(ge=-1, le=2**31)] | Annotated[float, Field(gt=0, le=64)]


class TowerMembers(StrictModel):
    """The members of a tower that are read."""

    model_type: Name = None
    hidden_act: Name = None
    use_swiglu_ffn: Switch = None
    width: Size = None
    d_model: Size = None
    layers: Size = None
    encoder_layers: Size = None
    conf_num_hidden_layers: Size = None
    num_blocks: Size = None
    encoder_ffn_dim: Size = None
    num_mel_bins: Size = None
    max_source_positions: Size = None
    conv_kernel_size: Size = None
    conf_conv_kernel_size: Size = None

    depth: Size = None
    num_hidden_layers: Size = None
    hidden_size: Size = None
    embed_dim: Size = None
    intermediate_size: Size = None
    out_hidden_size: Size = None
    in_channels: Size = None
    in_chans: Size = None
    num_channels: Size = None
    image_size: Sides | None = None
    patch_size: Sides | None = None
    temporal_patch_size: Size = None
    spatial_merge_size: Size = None
    num_position_embeddings: Size = None
    mlp_ratio: Ratio | None = None
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
    """A tower with its projector, or a part of one.

    Attributes:
        sharded: Elements that tensor-parallel ranks share.
        whole: Elements that each rank has.
        image_elements: Elements at the peak while an image of the largest size is encoded; 0 where that is not known.
        estimated: Whether it is counted as a usual tower, because its class is not known here.
    """

    sharded: int = 0
    whole: int = 0
    image_elements: int = 0
    estimated: bool = False

    def __add__(self, other: "Tower") -> "Tower":
        """Both parts."""
        return Tower(
            self.sharded + other.sharded, self.whole + other.whole, self.image_elements + other.image_elements,
            self.estimated or other.estimated,
        )  # fmt: skip

    def times(self, number: int) -> "Tower":
        """The same part several times."""
        return Tower(self.sharded * number, self.whole * number, self.image_elements, self.estimated)

    def elements(self, tensor: int) -> int:
        """Elements on one rank."""
        return self.sharded // tensor + self.whole


@dataclass(frozen=True, slots=True)
class Sizes:
    """The members of a tower; asking for one that is missing, or is no number, raises LookupError.

    Attributes:
        hidden: The hidden size of the language model.
        merge: `spatial_merge_size` of the whole config.json, if it is there.
    """

    members: Checked
    hidden: int
    merge: int | None

    def of(self, *names: str, default: int | None = None) -> int:
        """The first of some members that is given."""
        value = self.members.optional(*names)
        if value is None and not any(self.members.values.get(name) for name in names):
            value = default
        if value is None:
            raise LookupError(names[0])
        return value


def kept_tower(config: object) -> dict[str, Any] | Literal[True]:
    """The members of a tower that are read, so that they fit into a status; True where one does not fit."""
    found = checked(TowerMembers, config) if isinstance(config, Mapping) else Checked({}, {VISION: ""})
    return True if found.unfit else TowerMembers.model_validate(found.values).model_dump(exclude_none=True) or True
