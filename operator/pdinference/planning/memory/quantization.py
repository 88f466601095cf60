"""How many bytes a quantised linear layer takes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdinference.planning.memory.figures import ceil_div


@dataclass(frozen=True, slots=True)
class Quantization:
    """A way to store the weights of linear layers.

    Attributes:
        method: Name as vLLM knows it.
        bits: Bits of a weight.
        group: Input elements that share a scale; None: one scale for each output channel (or for the tensor).
        zero_points: Whether each group has a zero point of the same bits.
        block: Output and input elements that share a float32 scale (DeepSeek's FP8); None without.
        group_index: Whether each input element names its group (GPTQ's g_idx).
        skipped: Modules that stay as they are: names, or `re:` and a pattern.
        kv_bits: Bits of a KV element where the checkpoint says so; None otherwise.
    """

    method: str
    bits: float
    group: int | None = None
    zero_points: bool = False
    block: tuple[int, int] | None = None
    group_index: bool = False
    skipped: tuple[str, ...] = ()
    kv_bits: int | None = None

    def skips(self, module: str) -> bool:
        """Whether a module, for example `model.layers.0.mlp.gate_proj`, is left unquantised.

        Source: `is_layer_skipped` in vllm/model_executor/layers/quantization/utils/quant_utils.py and
        `should_ignore_layer` of compressed_tensors/utils.py; a name matches whole parts, so that `gate` is not
        `gate_proj`.
        """
        for pattern in self.skipped:
            if pattern.startswith("re:"):
                if re.match(pattern[3:], module):
                    return True
            elif f".{pattern}." in f".{module}.":
                return True
        return False

    def linear_parts(self, outputs: int, inputs: int, dtype_bytes: int) -> tuple[int, ...]:
        """Bytes of one linear layer's tensors: weights first, then scales and zero points; without bias.

        Source: `create_weights` in vllm/model_executor/layers/quantization/{awq,auto_gptq,fp8,bitsandbytes}.py: packed
        weights of outputs x inputs x bits, one scale in the model's dtype and one zero point for each group and output.

        Args:
            outputs: Output elements on this rank.
            inputs: Input elements on this rank.
            dtype_bytes: Bytes of a scale.
        """
        weights = int(outputs * inputs * self.bits / 8)
        if self.block is not None:
            rows, columns = self.block
            return weights, ceil_div(outputs, rows) * ceil_div(inputs, columns) * 4
        if self.method == "bitsandbytes":
            return weights, outputs * inputs // 64 * 4 if self.bits == 4 else outputs * 4
        if self.group is None:
            return weights, outputs * dtype_bytes if self.method == "compressed-tensors" else 4
        groups = ceil_div(inputs, self.group)
        zeros = int(groups * outputs * self.bits / 8) if self.zero_points else 0
        return weights, groups * outputs * dtype_bytes, zeros, inputs * 4 if self.group_index else 0


def quantization_of(config: object) -> Quantization | None:
    """Read `quantization_config` of a config.json; None when the checkpoint is not quantised.

    A method that is not known here gives 0 bits, which the plan reports as unknown.
    """
    return _read(config) if isinstance(config, Mapping) else None


def _read(config: Mapping[str, Any]) -> Quantization:
    method = str(config.get("quant_method") or config.get("quantization_method") or "")
    skipped = tuple(config.get("modules_to_not_convert") or config.get("ignored_layers") or config.get("ignore") or ())
    scheme = config.get("kv_cache_scheme")
    kv_bits = scheme.get("num_bits") if isinstance(scheme, Mapping) else None
    match method:
        case "awq":
            bits, group = (
                config.get("bits", config.get("w_bit", 4)),
                config.get("group_size", config.get("q_group_size")),
            )
            return Quantization("awq", bits, _group(group), zero_points=True, skipped=skipped)
        case "gptq":
            indexed = bool(config.get("desc_act"))
            return Quantization("gptq", config.get("bits", 4), _group(config.get("group_size")), zero_points=True,
                                group_index=indexed, skipped=skipped)  # fmt: skip
        case "fp8":
            block = _block("weight_block_size", config.get("weight_block_size"))
            return Quantization("fp8", 8, block=block, skipped=skipped, kv_bits=kv_bits)
        case "bitsandbytes":
            bits = 4 if config.get("load_in_4bit") or config.get("_load_in_4bit") else 8
            return Quantization("bitsandbytes", bits, skipped=tuple(config.get("llm_int8_skip_modules") or ()))
        case "compressed-tensors":
            return _compressed(config, skipped, kv_bits)
        case _:
            return Quantization(method or "unnamed", 0, skipped=skipped)


def quantized_on_load(method: str) -> Quantization | None:
    """What vLLM makes of an unquantised checkpoint; None when the method needs a quantised one."""
    on_load = {"fp8": Quantization("fp8", 8), "bitsandbytes": Quantization("bitsandbytes", 4)}
    return on_load.get(method)


def _compressed(config: Mapping[str, Any], skipped: tuple[str, ...], kv_bits: int | None) -> Quantization:
    groups = list((config.get("config_groups") or {}).values())
    weights = (groups[0].get("weights") if len(groups) == 1 and isinstance(groups[0], Mapping) else None) or {}
    block = weights.get("block_structure") if weights.get("strategy") == "block" else None
    return Quantization(
        "compressed-tensors",
        weights.get("num_bits", 0),
        _group(weights.get("group_size")),
        zero_points=weights.get("symmetric") is False,
        block=_block("block_structure", block),
        skipped=skipped,
        kv_bits=kv_bits,
    )


def _block(name: str, value: object) -> tuple[int, int] | None:
    match value:
        case None | []:
            return None
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
    raise ValueError(f"{name} is {value!r}, which has to be two positive integers")


def _group(size: object) -> int | None:
    return size if isinstance(size, int) and size > 0 else None
