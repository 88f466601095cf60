"""Layers that keep a state of fixed size for each request, whatever its length: their sizes, in elements.

Source: `MambaStateShapeCalculator` in vllm/model_executor/layers/mamba/mamba_utils.py. A state has two parts: the last
inputs of a short convolution, in the model's dtype, and what the recurrence accumulates, often in a larger one.

Tests: tests/memory/test_newer.py
"""

from dataclasses import dataclass


class _Channels:
    """Ranks share the channels of the convolution evenly.

    Attributes:
        width: Number of channels.
        kernel: Inputs that the convolution sees.
    """

    __slots__ = ()
    width: int
    kernel: int

    checkpoints = 0

    def divides(self, tensor: int) -> bool:
        """Whether this number of ranks can share it."""
        return self.width % tensor == 0

    def recent(self, tensor: int) -> int:
        """Elements of the convolution's last inputs on one rank."""
        return self.width // tensor * (self.kernel - 1)


@dataclass(frozen=True, slots=True)
class ShortConvolution(_Channels):
    """A gated short convolution alone (LFM2).

    Attributes:
        layers: Indexes of the layers that have it.
        kernel: Inputs that the convolution sees.
    """

    layers: frozenset[int]
    width: int
    kernel: int
    bias: bool = False

    def accumulated(self, _tensor: int) -> int:
        """Elements of the recurrence on one rank: it has none."""
        return 0


@dataclass(frozen=True, slots=True)
class Mamba1(_Channels):
    """A selective state space (Mamba, arXiv 2312.00752).

    Attributes:
        width: Inner width.
        state: Elements of the recurrence for each of it.
        rank: Width of the step's projection.
    """

    layers: frozenset[int]
    width: int
    state: int
    kernel: int
    rank: int
    convolution_bias: bool
    bias: bool

    def accumulated(self, tensor: int) -> int:
        """Elements of the recurrence on one rank."""
        return self.width // tensor * self.state


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A state space with heads (Mamba 2, arXiv 2405.21060).

    Attributes:
        width: Inner width.
        groups: Groups of heads that share their input and output projections.
        norm: Whether the output is normalised with weights.
    """

    layers: frozenset[int]
    width: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    convolution_bias: bool
    bias: bool
    norm: bool

    checkpoints = 1
    """`MambaMixer2.get_kv_cache_spec` keeps one state more for the prompt that is being computed."""

    def divides(self, tensor: int) -> bool:
        """Whether this number of ranks can share it (`MambaMixer2.__init__`)."""
        return self.heads % tensor == 0 and (self.groups == 1 or self.groups % tensor == 0)

    def local_groups(self, tensor: int) -> int:
        """Groups of all ranks; each rank has one at least (`extra_groups_for_head_shards`)."""
        return self.groups if self.groups % tensor == 0 else tensor

    def convolved(self, tensor: int) -> int:
        """Elements that pass the convolution on one rank."""
        return (self.width + 2 * self.local_groups(tensor) * self.state) // tensor

    def recent(self, tensor: int) -> int:
        """Elements of the convolution's last inputs on one rank."""
        return self.convolved(tensor) * (self.kernel - 1)

    def accumulated(self, tensor: int) -> int:
        """Elements of the recurrence on one rank."""
        return self.heads // tensor * self.head_dim * self.state


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Linear attention with the gated delta rule (arXiv 2412.06464)."""

    layers: frozenset[int]
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    checkpoints = 0

    def divides(self, tensor: int) -> bool:
        """Whether this number of ranks can share it."""
        return self.key_heads % tensor == 0 and self.value_heads % tensor == 0

    @property
    def keys(self) -> int:
        """Elements of all keys of a token."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Elements of all values of a token."""
        return self.value_heads * self.value_dim

    def recent(self, tensor: int) -> int:
        """Elements of the convolution's last inputs on one rank."""
        return (2 * self.keys + self.values) // tensor * (self.kernel - 1)

    def accumulated(self, tensor: int) -> int:
        """Elements of the recurrence on one rank."""
        return self.value_heads // tensor * self.value_dim * self.key_dim


State = ShortConvolution | Mamba1 | Mamba2 | DeltaNet
