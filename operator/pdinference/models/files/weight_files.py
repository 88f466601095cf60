"""Selects the files of a model that vLLM loads, by their names.

Source: `_prepare_weights` in vllm/model_executor/model_loader/default_loader.py, and in weight_utils.py beside it
`filter_duplicate_safetensors_files` and `filter_files_not_needed_for_inference`. With `load-format` auto or hf, vLLM
takes the first of `*.safetensors`, `*.bin` and `*.pt` that matches a file of the model's folder, never `*.pth`. Of
safetensors files it takes those of their index. It does not read an index of other files.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

SAFETENSORS, BIN = ".safetensors", ".bin"
_SUFFIXES = (SAFETENSORS, BIN, ".pt")
_INDEXES = {SAFETENSORS: "model.safetensors.index.json", BIN: "pytorch_model.bin.index.json"}
_OF_TRAINING = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
_MISTRAL = "consolidated"
"""Prefix of files in Mistral's format. They have the same tensors as the other files."""


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """Files of one kind.

    Attributes:
        suffix: `.safetensors`, `.bin` or `.pt`.
        names: The files, sorted.
    """

    suffix: str
    names: tuple[str, ...] = ()

    @property
    def index(self) -> str:
        """Name of their index; empty if files of this kind have none."""
        if self.suffix == SAFETENSORS and self.names and self.names[0].startswith(_MISTRAL):
            return f"{_MISTRAL}.safetensors.index.json"
        return _INDEXES.get(self.suffix, "")

    def missing(self, indexed: Collection[str]) -> tuple[str, ...]:
        """Missing `*.bin` or `*.pt` files of the model.

        The index is used only if it lists every existing file. Otherwise it may be left over from shards that have been
        merged, because vLLM does not read it.

        Args:
            indexed: The files in the index.
        """
        return tuple(sorted(set(indexed).difference(self.names))) if set(self.names) <= set(indexed) else ()

    def of_index(self, indexed: Collection[str]) -> "WeightFiles":
        """The files in the index, because others have no further tensors; all files if the index does not match."""
        named = set(indexed)
        return replace(self, names=tuple(sorted(named))) if named and named <= set(self.names) else self


def weight_files(there: Collection[str]) -> WeightFiles:
    """The files that vLLM loads, before their index is read.

    Args:
        there: Paths within the model's folder. Files in subfolders are ignored.
    """
    visible = [name for name in there if "/" not in name and not name.startswith(".")]
    for suffix in _SUFFIXES:
        if found := sorted(name for name in visible if name.endswith(suffix)):
            return WeightFiles(suffix, tuple(_needed(found)))
    return WeightFiles(SAFETENSORS)


def _needed(names: Collection[str]) -> Collection[str]:
    own = [name for name in names if not name.endswith(_OF_TRAINING)]
    others = [name for name in own if not (name.startswith(_MISTRAL) and name.endswith(SAFETENSORS))]
    return others or own
