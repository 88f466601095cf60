"""What kernels for experts in MXFP4 round the sizes of their weights up to, by device.

Tests: tests/memory/test_newer.py
"""

from dataclasses import dataclass

from pdinference.memory.figures import ceil_div
from pdinference.memory.gpus import gpu_memory

_HOPPER_PRODUCTS = ("nvidia-h100", "nvidia-h200", "nvidia-h20", "nvidia-h800", "nvidia-gh200")
_AMD_PRODUCTS = ("amd-", "mi3")


@dataclass(frozen=True, slots=True)
class ExpertPadding:
    """Each number is what a size is rounded up to.

    Attributes:
        width: The width of an expert on a rank.
        hidden: The hidden size.
        outputs: The outputs of each matrix after that.
        inputs: Its inputs after that.
    """

    width: int = 1
    hidden: int = 1
    outputs: int = 1
    inputs: int = 1

    def matrices(self, width: int, hidden: int, products: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Outputs and inputs of the two matrices of an expert.

        Args:
            width: Of the expert on a rank.
            hidden: The hidden size.
            products: Matrices that are one in the first: 2 with a gate.
        """
        wide, deep = _up(width, self.width), _up(hidden, self.hidden)
        return self._matrix(products * wide, deep), self._matrix(deep, wide)

    def _matrix(self, outputs: int, inputs: int) -> tuple[int, int]:
        return _up(outputs, self.outputs), _up(inputs, self.inputs)


NO_PADDING = ExpertPadding()
_CPU = ExpertPadding(32, 32)
_HOPPER = ExpertPadding(64, 1, outputs=256, inputs=128)
"""Triton, whose layout of values pads (128, 1440, 5760) to (128, 1472, 5888) bytes (TensorRT-LLM's pull request 16125).
vLLM 0.14.1 logged 64.38 GiB for gpt-oss-120b on an H100 (its issue 33155), where the plan says 64.42."""
_AMD = ExpertPadding(256, 256)
_OTHERS = ExpertPadding(128, 256)
"""TensorRT-LLM's kernels on Blackwell, Marlin on older devices."""


def expert_padding(products: list[str], *, cpu: bool) -> ExpertPadding:
    """The padding on the product with the smallest memory.

    Source: `mxfp4_round_up_hidden_size_and_intermediate_size` and `_get_priority_backends_for_gpt_oss` in
    vllm/model_executor/layers/fused_moe/oracle/mxfp4.py.
    """
    if cpu:
        return _CPU
    product = min(products, key=lambda each: gpu_memory(each).value or 0, default="").lower()
    if product.startswith(_HOPPER_PRODUCTS):
        return _HOPPER
    return _AMD if product.startswith(_AMD_PRODUCTS) else _OTHERS


def _up(size: int, to: int) -> int:
    return ceil_div(size, to) * to
