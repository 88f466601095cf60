"""Reads a model's files on this machine: `config.json`, and the headers of its safetensors files.

Tests: tests/models/files/test_hostile_files.py, tests/models/files/test_weight_files.py, tests/models/test_folder.py
"""

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from pdinference.api.bounded_json import BoundedJsonError
from pdinference.memory import Headers, TensorHeader
from pdinference.models.errors import ModelFilesError, listed, reading
from pdinference.models.files.json_files import CONFIG, INDEX, MOST_FILES, read_measured, read_object
from pdinference.models.files.paths import is_within
from pdinference.models.files.safetensors import Allowance, Header, read_header, refuse_pointer
from pdinference.models.files.weight_files import SAFETENSORS, WeightFiles, weight_files

MOST_TENSORS = 500_000
"""Maximum number of tensors of a model. A model with more has no facts."""
MOST_SHARDS = 10_000


def read_config(file: Path) -> dict[str, Any]:
    """Read a config.json.

    Raises:
        ModelFilesError: It is not a valid config.
    """
    return read_object(file, CONFIG)


def files_in_folder(folder: Path) -> WeightFiles:
    """The files that vLLM loads from a folder.

    Raises:
        ModelFilesError: A file is missing, or the index of safetensors files is damaged.
    """
    with reading(folder):
        names = [entry.name for entry in islice(folder.iterdir(), MOST_FILES + 1)]
    if len(names) > MOST_FILES:
        raise ModelFilesError(
            f"{folder} has more than {MOST_FILES:,} files. Check whether it is the folder of the model."
        )
    files = weight_files(names)
    if files.suffix == SAFETENSORS:
        indexed = tuple(str(file.relative_to(folder)) for file in indexed_files(folder / files.index))
        return WeightFiles(SAFETENSORS, indexed or files.names)
    return _of_other_index(folder, files)


def _of_other_index(folder: Path, files: WeightFiles) -> WeightFiles:
    """The files of an index of `*.bin` or `*.pt` files. A damaged index is ignored, because vLLM does not read it.

    Raises:
        ModelFilesError: Some files of the model are missing.
    """
    index = folder / files.index
    if not files.index or not os.path.lexists(index):
        return files
    try:
        indexed = names_in_index(read_measured(index, INDEX))
    except (BoundedJsonError, ModelFilesError):
        return files
    if missing := files.missing(indexed):
        raise _incomplete(index, missing)
    return files.of_index(indexed)


def headers_in_folder(folder: Path, files: WeightFiles) -> Headers | None:
    """The headers of safetensors files; None if there are none or too many.

    Raises:
        ModelFilesError: A file is missing or damaged.
    """
    tensors: dict[str, TensorHeader] = {}
    allowance = Allowance()
    for name in files.names:
        header = read_header(folder / name, allowance)
        if header is None or len(tensors) + len(header.tensors) > MOST_TENSORS:
            return None
        tensors |= planned(header)
    return tensors or None


def planned(header: Header) -> dict[str, TensorHeader]:
    """The part of a header that the memory plan needs."""
    return {name: TensorHeader(t.dtype, t.elements, t.size) for name, t in header.tensors.items()}


def indexed_files(index: Path) -> list[Path]:
    """The files in an index of safetensors files; empty without an index.

    Raises:
        ModelFilesError: The index is damaged, or a file is missing.
    """
    if not os.path.lexists(index):
        return []
    refuse_pointer(index)
    try:
        names = names_in_index(read_measured(index, INDEX))
    except BoundedJsonError:
        raise ModelFilesError(f"{index} is not a valid index of safetensors files. Copy it again.") from None
    files = [index.parent / name for name in names]
    missing = [file.name for file in files if not os.path.lexists(file)]
    if missing:
        raise _incomplete(index, missing)
    return files


def _incomplete(index: Path, missing: Iterable[str]) -> ModelFilesError:
    return ModelFilesError(f"{index} lists files that do not exist: {listed(missing)}. Copy the complete model.")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_INDEX = msgspec.json.Decoder(_Index)


def names_in_index(content: bytes) -> list[str]:
    """The files in the content of an index.

    Raises:
        BoundedJsonError: It is not an index, or lists files outside of the folder.
    """
    try:
        names = sorted(set(_INDEX.decode(content).weight_map.values()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BoundedJsonError("is no index") from None
    if len(names) > MOST_SHARDS or not all(map(is_within, names)):
        raise BoundedJsonError("names files outside of the folder, or too many")
    return names
