"""A checkpoint as far as memory is concerned: how many bytes vLLM makes of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pdinference.planning.memory.shape import ModelFacts

_LAYER = re.compile(
    r"^(?:(?:model|language_model\.model|model\.language_model|gpt_neox|transformer\.encoder)\.layers"
    r"|(?:transformer\.)?h)\.([0-9]{1,9})\."
)
_CAST = {"F64", "F32", "F16", "BF16"}
"""Types that vLLM casts to the model's dtype while it loads; others keep their size."""


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """What a safetensors file says about a tensor (https://huggingface.co/docs/safetensors, 'Format').

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


def checkpoint_of(headers: Headers, facts: ModelFacts) -> Checkpoint:
    """Add up what vLLM loads.

    Left out: layers beyond the model's own (DeepSeek's multi-token prediction), a head that is tied, and rotary tables,
    which vLLM computes. Source: `load_weights` in vllm/model_executor/models/{llama,deepseek_v2}.py.
    """
    elements = scale_elements = scale_bytes = other_bytes = 0
    for name, header in headers.items():
        match = _LAYER.match(name)
        if (match and int(match[1]) >= facts.layers) or "rotary_emb.inv_freq" in name:
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
