"""The size of quantised linear layers, in bytes.

Tests: tests/memory/weights/test_weights.py
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from pdinference.memory.figures import ceil_div
from pdinference.memory.model.config import QUANTIZATION
from pdinference.memory.model.quantization_config import GroupWeights, QuantizationConfig, checked_quantization
from pdinference.memory.model.skipped import (
    NONE_SKIPPED,
    SkippedModules,
    UnusablePatternError,
    skipped_modules,
)

_SMALLEST_BLOCK = 32
"""vLLM refuses a split into smaller ones."""

NO_CONFIG = (
    "spec.model.quantization needs a quantised checkpoint, and config.json has no quantization_config. Copy it, or the "
    "checkpoint's quantize_config.json, into spec.model.architecture.config.quantization_config."
)


@dataclass(frozen=True, slots=True)
class Quantization:
    """A way to store the weights of linear layers.

    Attributes:
        method: Name of the method in vLLM.
        bits: Bits of a weight; 0 where that is not known.
        group: Input elements that share a scale; None: one scale for each output channel (or for the tensor).
        zero_points: Whether each group has a zero point of the same bits.
        block: Output and input elements that share a float32 scale (DeepSeek's FP8); None without.
        group_index: Whether each input element names its group (GPTQ's g_idx).
        skipped: Modules that are not quantised.
        kv_bits: Bits of a KV element from the checkpoint; None without.
        unfit: The error of the checkpoint's quantization_config, if it cannot be read; empty otherwise.
        kv_known: Whether kv_bits could be read.
        experts_only: Whether experts alone are quantised, and their sizes padded (MXFP4).
    """

    method: str
    bits: int = 0
    group: int | None = None
    zero_points: bool = False
    block: tuple[int, int] | None = None
    group_index: bool = False
    skipped: SkippedModules = NONE_SKIPPED
    kv_bits: int | None = None
    unfit: str = ""
    kv_known: bool = True
    experts_only: bool = False

    def linear_parts(self, outputs: int, inputs: int, dtype_bytes: int) -> tuple[int, ...]:
        """Bytes of one linear layer's tensors: weights first, then scales and zero points; without bias.

        Source: `create_weights` in vllm/model_executor/layers/quantization/{awq,auto_gptq,fp8,bitsandbytes}.py: packed
        weights of outputs x inputs x bits, one scale in the model's dtype and one zero point for each group and output.

        Args:
            outputs: Output elements on this rank.
            inputs: Input elements on this rank.
            dtype_bytes: Bytes of a scale.
        """
        weights = outputs * inputs * self.bits // 8
        if self.block is not None:
            rows, columns = self.block
            return weights, ceil_div(outputs, rows) * ceil_div(inputs, columns) * 4
        if self.method == "bitsandbytes":
            return weights, outputs * inputs // 64 * 4 if self.bits == 4 else outputs * 4
        if self.method == "mxfp4":
            return weights, outputs * inputs // (self.group or 1)
        if self.group is None:
            return weights, outputs * dtype_bytes if self.method == "compressed-tensors" else 4
        groups = ceil_div(inputs, self.group)
        zeros = groups * outputs * self.bits // 8 if self.zero_points else 0
        return weights, groups * outputs * dtype_bytes, zeros, inputs * 4 if self.group_index else 0

    def of_experts(self, width: int, hidden: int) -> Self:
        """The same with smaller blocks, where a rank's part of an expert is not a whole number of them.

        Source: `refine_fp8_moe_block_shape` in vllm/model_executor/layers/fused_moe/oracle/fp8.py.

        Args:
            width: Of an expert on this rank.
            hidden: The hidden size.
        """
        if self.method != "fp8" or self.block is None or not any(width % side for side in self.block):
            return self
        side = math.gcd(*self.block, width, hidden)
        return replace(self, block=(side, side)) if side >= _SMALLEST_BLOCK else self


_FIXED = {"mxfp4": Quantization("mxfp4", 4, 32, experts_only=True)}
"""Methods without options."""


def quantization_of(config: object) -> Quantization | None:
    """Read `quantization_config` of a config.json; None when the checkpoint is not quantised.

    A method that is not known here, and a config that does not fit, give 0 bits, which the plan reports as unknown.
    """
    if not config:
        return None
    read, unfit = checked_quantization(config)
    method = read.quant_method or read.quantization_method or "unnamed"
    if unfit:
        kv_known = not unfit.keys() & {"kv_cache_scheme", QUANTIZATION}
        return Quantization(method, kv_bits=read.kv_bits, unfit=" ".join(unfit.values()), kv_known=kv_known)
    try:
        return _read(method, read)
    except UnusablePatternError as error:
        return Quantization(method, kv_bits=read.kv_bits, unfit=str(error))


def stated_quantization(method: str | None) -> Quantization | None:
    """The quantisation of spec.model.quantization, if config.json has no quantization_config.

    vLLM quantises with fp8 and bitsandbytes while it loads. Any other method needs a checkpoint made so, whose bits are
    in the config that is missing: 0 bits.
    """
    on_load = {"fp8": Quantization("fp8", 8), "bitsandbytes": Quantization("bitsandbytes", 4)}
    return on_load.get(method, Quantization(method, unfit=NO_CONFIG)) if method else None


def _read(method: str, config: QuantizationConfig) -> Quantization:
    skipped = skipped_modules(config.skipped)
    match method:
        case "awq":
            bits = config.bits or config.w_bit or 4
            return Quantization(method, bits, _group(config.group_size or config.q_group_size), zero_points=True,
                                skipped=skipped)  # fmt: skip
        case "gptq":
            return Quantization(method, config.bits or 4, _group(config.group_size), zero_points=True,
                                group_index=bool(config.desc_act), skipped=skipped)  # fmt: skip
        case "fp8":
            return Quantization(method, 8, block=config.block, skipped=skipped, kv_bits=config.kv_bits)
        case "bitsandbytes":
            bits = 4 if config.load_in_4bit or config.load_in_4bit_private else 8
            return Quantization(method, bits, skipped=skipped_modules(config.llm_int8_skip_modules or ()))
        case "compressed-tensors":
            return _compressed(config, skipped)
        case _:
            return replace(_FIXED.get(method, Quantization(method)), skipped=skipped)


def _compressed(config: QuantizationConfig, skipped: SkippedModules) -> Quantization:
    groups = list((config.config_groups or {}).values())
    weights = (groups[0].weights if len(groups) == 1 else None) or GroupWeights()
    return Quantization(
        "compressed-tensors",
        weights.num_bits or 0,
        _group(weights.group_size),
        zero_points=weights.symmetric is False,
        block=weights.block,
        skipped=skipped,
        kv_bits=config.kv_bits,
    )


def _group(size: int | None) -> int | None:
    return size if size is not None and size > 0 else None
