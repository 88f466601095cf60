"""Headers of safetensors files: a length in 8 bytes, then JSON that tells where in the rest each tensor is."""

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

from pdinference.models.errors import ModelFilesError, reading

_LENGTH = struct.Struct("<Q")
_LARGEST = 100_000_000  # the format's own limit
_POINTER = b"version https://git-lfs.github.com/spec/"


class Header(NamedTuple):
    """What a file says of itself.

    Attributes:
        tensors: Of each its `dtype`, `shape` and `data_offsets`.
        size: Bytes that the whole file has to have.
    """

    tensors: dict[str, dict[str, Any]]
    size: int


def read_header(file: Path) -> Header:
    """The header of one file; whether the rest is there is another question.

    Raises:
        ModelFilesError: There is none.
    """
    refuse_pointer(file)
    with reading(file), file.open("rb") as stream:
        there = file.stat().st_size
        start = stream.read(_LENGTH.size)
        length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
        if length > _LARGEST:
            raise ModelFilesError(f"{file} is no safetensors file: its header would be {length:,} bytes long.")
        if length == 0 or _LENGTH.size + length > there:
            raise ModelFilesError(f"{file} ends within its header, after {there:,} bytes. Copy it again.")
        text = stream.read(length)
    tensors = _tensors(file, text)
    end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    return Header(tensors, _LENGTH.size + length + end)


def refuse_pointer(file: Path) -> None:
    """Raise ModelFilesError for what git leaves in place of a large file."""
    with reading(file), file.open("rb") as stream:
        start = stream.read(len(_POINTER))
    if start == _POINTER:
        raise ModelFilesError(
            f"{file} is a Git LFS pointer, not the file that it stands for. Run `git lfs pull` in the clone, and copy "
            "the model again."
        )


def _tensors(file: Path, text: bytes) -> dict[str, dict[str, Any]]:
    try:
        header = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ModelFilesError(f"{file} is no safetensors file, or damaged: its header is no JSON.") from None
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"} if _is_map(header) else None
    if tensors is None or not all(map(_is_tensor, tensors.values())):
        raise ModelFilesError(f"{file} is no safetensors file, or damaged: its header names no tensors.")
    return tensors


def _is_tensor(entry: Any) -> bool:
    if not _is_map(entry) or not isinstance(entry.get("dtype"), str):
        return False
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    return _are_counts(shape) and _are_counts(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1]


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)
