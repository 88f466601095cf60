"""A parameter on one rank, and how quantisation stores it.

Tests: tests/memory/weights/test_weights.py
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pdinference.memory.settings import Settings


@dataclass(frozen=True, slots=True)
class Tensor:
    """One layer's parameter on one rank.

    Attributes:
        kind: `embedding`, `attention`, `state`, `mlp`, `experts`, `norm`, `head` or `vision`.
        parts: Bytes of each tensor: the weights, and where they are quantised, scales and zero points.
        linear: Output and input elements of a linear layer, for LoRA; None for others.
        merged: How many layers of the checkpoint vLLM merged into it.
        count: How many of them there are.
    """

    kind: str
    parts: tuple[int, ...]
    linear: tuple[int, int] | None = None
    merged: int = 1
    count: int = 1

    @property
    def is_quantised(self) -> bool:
        """Whether it has scales."""
        return len(self.parts) > 1

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.count * sum(self.parts)


def plain(settings: Settings, kind: str, elements: int) -> Tensor:
    """A parameter that is never quantised, in the model's dtype."""
    return Tensor(kind, (elements * settings.dtype_bytes,))


def linear(
    settings: Settings, kind: str, modules: Iterable[str], outputs: int, inputs: int, *, merged: int = 1
) -> Tensor:
    """A linear layer without bias.

    Args:
        settings: How the model is run.
        kind: Of the tensor.
        modules: Its name in vLLM and in checkpoints, and the names of the layers that it is made of.
        outputs: Output elements on this rank.
        inputs: Input elements on this rank.
        merged: How many layers of the checkpoint vLLM merged into it.
    """
    quantization = settings.quantization
    if quantization is None or quantization.experts_only or any(name in quantization.skipped for name in modules):
        parts: tuple[int, ...] = (outputs * inputs * settings.dtype_bytes,)
    else:
        parts = quantization.linear_parts(outputs, inputs, settings.dtype_bytes)
    return Tensor(kind, parts, (outputs, inputs), merged=merged)
