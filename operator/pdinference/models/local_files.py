"""A model's files on this machine: `config.json`, and the headers of its safetensors files."""

import json
import math
import os
from pathlib import Path
from typing import Any

from pdinference.models.errors import ModelFilesError, listed, reading
from pdinference.models.safetensors import read_header, refuse_pointer
from pdinference.planning.memory import Headers, TensorHeader


def read_config(file: Path) -> dict[str, Any]:
    """A config.json.

    Raises:
        ModelFilesError: It is none.
    """
    try:
        with reading(file):
            content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
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
    with reading(index):
        content = index.read_bytes()
    try:
        names = sorted(set(json.loads(content.decode("utf-8"))["weight_map"].values()))
        files = [index.parent / name for name in names]
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        raise ModelFilesError(f"{index} is no index of safetensors files, or damaged. Copy it again.") from None
    missing = [file.name for file in files if not os.path.lexists(file)]
    if missing:
        raise ModelFilesError(f"{index} names files that are not there: {listed(missing)}. Copy the whole model.")
    return files


def _header(file: Path) -> dict[str, TensorHeader]:
    return {
        name: TensorHeader(
            entry["dtype"], math.prod(entry["shape"]), entry["data_offsets"][1] - entry["data_offsets"][0]
        )
        for name, entry in read_header(file).tensors.items()
    }
