"""A model's files on this machine: `config.json`, and the headers of its safetensors files."""

import os
from pathlib import Path
from typing import Any

import msgspec

from pdinference.api.bounded_json import BoundedJsonError
from pdinference.models.errors import ModelFilesError, listed
from pdinference.models.json_files import CONFIG, INDEX, read_measured, read_object
from pdinference.models.paths import is_within
from pdinference.models.safetensors import Header, read_header, refuse_pointer
from pdinference.planning.memory import Headers, TensorHeader

MOST_TENSORS = 500_000
"""Of all files of a model; of one with more, nothing is known."""
MOST_SHARDS = 10_000


def read_config(file: Path) -> dict[str, Any]:
    """A config.json.

    Raises:
        ModelFilesError: It is none.
    """
    return read_object(file, CONFIG)


def read_headers(folder: Path) -> Headers | None:
    """The headers of the safetensors files that vLLM loads from a folder; None without any, or with too many.

    Raises:
        ModelFilesError: A file is missing or damaged.
    """
    tensors: dict[str, TensorHeader] = {}
    for file in _weight_files(folder):
        header = read_header(file)
        if header is None or len(tensors) + len(header.tensors) > MOST_TENSORS:
            return None
        tensors |= planned(header)
    return tensors or None


def planned(header: Header) -> dict[str, TensorHeader]:
    """What the memory plan needs of a header."""
    return {name: TensorHeader(t.dtype, t.elements, t.size) for name, t in header.tensors.items()}


def _weight_files(folder: Path) -> list[Path]:
    """The files that vLLM loads: those of the index when there is one, so that copies do not count twice.

    Source: `filter_duplicate_safetensors_files` in vllm/model_executor/model_loader/weight_utils.py.
    """
    indexed = indexed_files(folder / "model.safetensors.index.json")
    return indexed or [
        file for file in sorted(folder.glob("*.safetensors")) if not file.name.startswith("consolidated")
    ]


def indexed_files(index: Path) -> list[Path]:
    """The files that an index of safetensors files names; none where there is no index.

    Raises:
        ModelFilesError: It is damaged, or a file is missing.
    """
    if not os.path.lexists(index):
        return []
    refuse_pointer(index)
    try:
        names = names_in_index(read_measured(index, INDEX))
    except BoundedJsonError:
        raise ModelFilesError(f"{index} is no index of safetensors files, or damaged. Copy it again.") from None
    files = [index.parent / name for name in names]
    missing = [file.name for file in files if not os.path.lexists(file)]
    if missing:
        raise ModelFilesError(f"{index} names files that are not there: {listed(missing)}. Copy the whole model.")
    return files


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_INDEX = msgspec.json.Decoder(_Index)


def names_in_index(content: bytes) -> list[str]:
    """The files that the content of an index names.

    Raises:
        BoundedJsonError: It is no index, or names files elsewhere.
    """
    try:
        names = sorted(set(_INDEX.decode(content).weight_map.values()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BoundedJsonError("is no index") from None
    if len(names) > MOST_SHARDS or not all(map(is_within, names)):
        raise BoundedJsonError("names files outside of the folder, or too many")
    return names
