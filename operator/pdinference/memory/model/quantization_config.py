"""The members of `quantization_config` that are read, with their types and ranges.

Tests: tests/checks/test_memory.py, tests/memory/weights/test_weights.py
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pdinference.memory.model.config import Name, StrictModel, Switch, checked

MOST_PATTERNS, LONGEST_PATTERN = 1024, 256

Bits = Annotated[int, Field(ge=1, le=16)] | None
GroupSize = Annotated[int, Field(ge=-1, le=65536)] | None
"""-1 in some files where all inputs share a scale."""
Side = Annotated[int, Field(ge=1, le=65536)]
Block = Annotated[list[Side], Field(min_length=2, max_length=2)] | Annotated[list[Side], Field(max_length=0)] | None
Modules = (
    Annotated[list[Annotated[str, Field(max_length=LONGEST_PATTERN)]], Field(max_length=MOST_PATTERNS, fail_fast=True)]
    | None
)


class GroupWeights(StrictModel):
    """How compressed-tensors stores the weights of a group of modules."""

    num_bits: Bits = None
    group_size: GroupSize = None
    symmetric: Switch = None
    strategy: Name = None
    block_structure: Block | Annotated[str, Field(max_length=64)] = None

    @model_validator(mode="after")
    def _blocks_have_sides(self) -> Self:
        if self.strategy == "block" and not isinstance(self.block_structure, list | None):
            raise ValueError("block_structure has to be two positive integers.")
        return self

    @property
    def block(self) -> tuple[int, int] | None:
        """Output and input elements that share a scale; None where scales are no blocks."""
        return _pair(self.block_structure) if self.strategy == "block" else None


class ModuleGroup(StrictModel):
    """A group of modules that compressed-tensors stores alike."""

    weights: GroupWeights | None = None


Groups = Annotated[dict[Annotated[str, Field(max_length=256)], ModuleGroup], Field(min_length=1, max_length=64)] | None


class CacheScheme(StrictModel):
    """How the KV cache is quantised."""

    num_bits: Literal[8, 16, 32]


class QuantizationConfig(StrictModel):
    """The members of all methods that are read."""

    quant_method: Name = None
    quantization_method: Name = None
    bits: Bits = None
    w_bit: Bits = None
    group_size: GroupSize = None
    q_group_size: GroupSize = None
    desc_act: Switch = None
    weight_block_size: Block = None
    load_in_4bit: Switch = None
    load_in_4bit_private: Switch = Field(default=None, alias="_load_in_4bit")
    kv_cache_scheme: CacheScheme | None = None
    config_groups: Groups = None
    modules_to_not_convert: Modules = None
    ignored_layers: Modules = None
    ignore: Modules = None
    llm_int8_skip_modules: Modules = None

    @property
    def block(self) -> tuple[int, int] | None:
        """Output and input elements that share a scale."""
        return _pair(self.weight_block_size)

    @property
    def skipped(self) -> list[str]:
        """Modules that are not quantised."""
        return self.modules_to_not_convert or self.ignored_layers or self.ignore or []

    @property
    def kv_bits(self) -> int | None:
        """Bits of a KV element."""
        return self.kv_cache_scheme.num_bits if self.kv_cache_scheme else None


def checked_quantization(config: object) -> tuple[QuantizationConfig, Mapping[str, str]]:
    """The valid members, and the invalid ones, each with its error."""
    if not isinstance(config, Mapping):
        return QuantizationConfig(), {"quantization_config": "quantization_config: This must be of type object."}
    found = checked(QuantizationConfig, config)
    return QuantizationConfig.model_validate(found.values), found.unfit


def _pair(sides: object) -> tuple[int, int] | None:
    return (sides[0], sides[1]) if isinstance(sides, list) and len(sides) == 2 else None
