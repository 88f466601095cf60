"""The known size of a model's weights: from headers of its files, their sizes, or the spec.

Tests: tests/memory/weights/test_weights.py, tests/memory/weights/test_stored.py
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pdinference.memory.figures import GIB
from pdinference.memory.model.shape import ModelFacts

_LAYER = re.compile(
    r"^(?:(?:model|language_model\.model|model\.language_model|backbone|gpt_neox|transformer\.encoder)\.layers"
    r"|(?:transformer\.)?h)\.([0-9]{1,9})\."
)
_PREDICTION = ("mtp.", "model.mtp.")
_CAST = {"F64", "F32", "F16", "BF16"}
"""Types that vLLM casts to the model's dtype while it loads; others keep their size."""


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """The header of a tensor in a safetensors file (https://huggingface.co/docs/safetensors, 'Format').

    Attributes:
        dtype: For example `BF16`.
        elements: Product of the shape.
        size: Bytes in the file.
    """

    dtype: str
    elements: int
    size: int


Headers = Mapping[str, TensorHeader]
"""The tensors of all files of a model, by name."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors that vLLM loads, in four numbers: small enough for a status.

    Attributes:
        elements: Of tensors that vLLM casts to the model's dtype.
        scale_elements: Of scales, which are cast unless the model is quantised.
        scale_bytes: The same in the files.
        other_bytes: Of tensors that stay as they are.
    """

    elements: int = 0
    scale_elements: int = 0
    scale_bytes: int = 0
    other_bytes: int = 0

    def loaded_bytes(self, *, dtype_bytes: int, quantised: bool) -> int:
        """Bytes of all tensors once they are loaded, on one device."""
        scales = self.scale_bytes if quantised else self.scale_elements * dtype_bytes
        return self.elements * dtype_bytes + scales + self.other_bytes


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """Weight files with known sizes only.

    Attributes:
        suffix: How their names end, for example `.bin`.
        files: How many there are.
        file_bytes: Of all of them, as they are stored.
    """

    suffix: str
    files: int
    file_bytes: int

    @property
    def note(self) -> str:
        """Where the number comes from: `Sizes of 2 .bin files: 13.04 GiB`."""
        what = f"Size of 1 {self.suffix} file" if self.files == 1 else f"Sizes of {self.files:,} {self.suffix} files"
        return f"{what}: {self.file_bytes / GIB:.2f} GiB"


@dataclass(frozen=True, slots=True)
class StatedWeights:
    """The size of the weights in the spec.

    Attributes:
        size: Bytes of all weights as vLLM loads them.
    """

    size: int


KnownWeights = Checkpoint | StoredFiles | StatedWeights


def known_weights(weights: Headers | StoredFiles, facts: ModelFacts) -> Checkpoint | StoredFiles:
    """The size of a model's weights from its files, small enough for a status."""
    return weights if isinstance(weights, StoredFiles) else checkpoint_of(weights, facts)


def checkpoint_of(headers: Headers, facts: ModelFacts) -> Checkpoint:
    """Add up what vLLM loads.

    Left out: layers for multi-token prediction (beyond the model's own, or called `mtp`), a head that is tied, and
    rotary tables, which vLLM computes. Source: `load_weights` in
    vllm/model_executor/models/{llama,deepseek_v2,qwen3_next}.py.
    """
    elements = scale_elements = scale_bytes = other_bytes = 0
    for name, header in headers.items():
        match = _LAYER.match(name)
        beyond = name.startswith(_PREDICTION) or (match and int(match[1]) >= facts.layers)
        if beyond or "rotary_emb.inv_freq" in name:
            continue
        if facts.tied_embeddings and name.endswith("lm_head.weight"):
            continue
        if header.dtype not in _CAST:
            other_bytes += header.size
        elif name.endswith(("_scale", "_scale_inv")):
            scale_elements += header.elements
            scale_bytes += header.size
        else:
            elements += header.elements
    return Checkpoint(elements, scale_elements, scale_bytes, other_bytes)
