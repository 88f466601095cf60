"""Headers of safetensors files: a length in 8 bytes, then JSON with type, shape and offsets of each tensor.

The checks are those of the library (https://github.com/huggingface/safetensors, `Metadata`): tensors are contiguous,
and the size of each matches its shape and type.

Tests: tests/models/test_folder.py, tests/models/files/test_hostile_files.py, tests/models/test_folder_like_vllm.py
"""

import math
import os
import struct
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from pdinference.api.bounded_json import BoundedJsonError, measure
from pdinference.models.errors import ModelFilesError, reading
from pdinference.models.files.json_files import HEADER, MIB
from pdinference.models.limits import MOST_BYTES
from pdinference.regular_files import open_regular

LENGTH = struct.Struct("<Q")
_LARGEST = 100_000_000  # limit of the format
_POINTER = b"version https://git-lfs.github.com/spec/"
_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F16": 16, "BF16": 16, "I16": 16}
_BITS |= {"U16": 16, "F32": 32, "I32": 32, "U32": 32, "F64": 64, "I64": 64, "U64": 64}
"""Bits of the known types. The format may add others."""
_ONE_AT_A_TIME = Lock()
_SMALL = MIB

_Count = Annotated[int, Meta(ge=0, le=MOST_BYTES)]


class StoredTensor(msgspec.Struct, gc=False):
    """One tensor."""

    dtype: Annotated[str, Meta(max_length=32)]
    shape: Annotated[list[_Count], Meta(max_length=32)]
    data_offsets: tuple[_Count, _Count]

    @property
    def size(self) -> int:
        """Size in the file in bytes."""
        return self.data_offsets[1] - self.data_offsets[0]

    @property
    def elements(self) -> int:
        """Product of the shape."""
        return math.prod(self.shape)


_ENTRIES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TENSOR = msgspec.json.Decoder(StoredTensor)


class Header(NamedTuple):
    """The header of a file.

    Attributes:
        tensors: Tensors by name.
        size: Size of the complete file in bytes.
    """

    tensors: Mapping[str, StoredTensor]
    size: int


class Allowance:
    """Bytes of headers that are parsed of one model. One with 200,000 tensors has 25 MiB, in any number of files."""

    def __init__(self, most: int = 64 * MIB) -> None:
        self._left = most
        self._lock = Lock()

    def take(self, length: int) -> bool:
        """Whether another header may be parsed."""
        with self._lock:
            self._left -= length
            return self._left >= 0


def read_header(file: Path, allowance: Allowance) -> Header | None:
    """Read the header of one file. The size of the file is not checked.

    Args:
        file: The file.
        allowance: What the headers of the model may have together.

    Returns:
        The header; None if it exceeds the limits.

    Raises:
        ModelFilesError: The file has no valid header.
    """
    refuse_pointer(file)
    with reading(file), open_regular(file) as stream:
        there = os.fstat(stream.fileno()).st_size
        length = header_length(stream.read(LENGTH.size))
        if length > _LARGEST:
            raise ModelFilesError(f"{file} is not a safetensors file: its header would have {length:,} bytes.")
        if length == 0 or LENGTH.size + length > there:
            raise ModelFilesError(f"{file} is truncated within its header, after {there:,} bytes. Copy it again.")
        if length > HEADER.size or not allowance.take(length):
            return None
        try:
            if length <= _SMALL:
                return parsed_header(stream.read(length))
            with _ONE_AT_A_TIME:  # files are read in parallel, and parsing a large header takes ten times its size
                return parsed_header(stream.read(length))
        except BoundedJsonError as error:
            raise ModelFilesError(f"{file} is not a safetensors file, or is damaged: its header {error}.") from None


def header_length(start: bytes) -> int:
    """Length of the header from the first 8 bytes of a file; 0 if there are fewer."""
    return int(LENGTH.unpack(start)[0]) if len(start) == LENGTH.size else 0


def refuse_pointer(file: Path) -> None:
    """Raise ModelFilesError for a Git LFS pointer."""
    with reading(file), open_regular(file) as stream:
        start = stream.read(len(_POINTER))
    if start == _POINTER:
        raise ModelFilesError(
            f"{file} is a Git LFS pointer instead of the file. Run `git lfs pull` in the clone, and copy "
            "the model again."
        )


def parsed_header(text: bytes) -> Header:
    """Parse the JSON of a header.

    Raises:
        BoundedJsonError: It is invalid. The message is a clause.
    """
    try:
        measure(text, HEADER)
    except BoundedJsonError as error:
        raise BoundedJsonError(f"is no JSON that can be read: it {error}") from None
    try:
        entries = _ENTRIES.decode(text)
        entries.pop("__metadata__", None)
        tensors = {name: _TENSOR.decode(entry) for name, entry in entries.items()}
    except (msgspec.ValidationError, UnicodeDecodeError):
        raise BoundedJsonError("names no tensors") from None
    except (msgspec.DecodeError, RecursionError):
        raise BoundedJsonError("is no JSON") from None
    return Header(tensors, LENGTH.size + len(text) + _end(tensors))


def _end(tensors: Mapping[str, StoredTensor]) -> int:
    """The end offset of the last tensor."""
    end = 0
    for tensor in sorted(tensors.values(), key=attrgetter("data_offsets")):
        start, after = tensor.data_offsets
        if start != end or after < start:
            raise BoundedJsonError("names tensors that overlap or leave holes")
        if tensor.elements * _BITS.get(tensor.dtype, 0) not in {0, 8 * tensor.size}:
            raise BoundedJsonError("names tensors whose shape does not fit their size")
        end = after
    return end
