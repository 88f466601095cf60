"""A model's files on this machine: `config.json`, and the headers of its safetensors files."""

import json
import math
import struct
from pathlib import Path
from typing import Any

from pdinference.planning.memory import Headers, TensorHeader

_LARGEST_HEADER = 100_000_000  # the format's own limit


class ModelFilesError(ValueError):
    """A model's files are absent or damaged; the message says what to do."""


def read_config(file: Path) -> dict[str, Any]:
    """A config.json.

    Raises:
        ModelFilesError: It is none.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFilesError(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelFilesError(f"{file} is no model configuration: it has to be a JSON object.")
    return content


def read_headers(folder: Path) -> Headers | None:
    """The headers of the safetensors files that vLLM loads from a folder; None without any.

    Raises:
        ModelFilesError: A file is missing or damaged.
    """
    tensors: dict[str, TensorHeader] = {}
    for file in _weight_files(folder):
        tensors |= _header(file)
    return tensors or None


def _weight_files(folder: Path) -> list[Path]:
    """The files that vLLM loads: those of the index when there is one, so that copies do not count twice.

    Source: `filter_duplicate_safetensors_files` in vllm/model_executor/model_loader/weight_utils.py.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelFilesError(f"{index} is no index of safetensors files: {error!r}.") from None
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelFilesError(f"{index} names files that are not there: {', '.join(missing[:3])}.")
        return [folder / name for name in names]
    return [file for file in sorted(folder.glob("*.safetensors")) if not file.name.startswith("consolidated")]


def _header(file: Path) -> dict[str, TensorHeader]:
    """The header of a safetensors file: its length as 8 bytes, then JSON."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _LARGEST_HEADER:
                raise ModelFilesError(f"{file} is no safetensors file: its header would be {length} bytes long.")
            header = json.loads(stream.read(length))
        return {
            name: TensorHeader(
                entry["dtype"], math.prod(entry["shape"]), entry["data_offsets"][1] - entry["data_offsets"][0]
            )
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (OSError, struct.error, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, IndexError) as error:
        raise ModelFilesError(f"{file} is no safetensors file, or damaged: {error!r}.") from None
