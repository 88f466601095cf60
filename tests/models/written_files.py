"""Model files of minimal size."""

import json
import os
import struct
from pathlib import Path
from typing import Any


def safetensors(tensors: dict[str, tuple[str, int]]) -> bytes:
    """A file with tensors of two bytes an element."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, elements) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [elements], "data_offsets": [offset, offset + 2 * elements]}
        offset += 2 * elements
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + os.urandom(offset)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 976\n"
WHOLE = safetensors({"a": ("BF16", 40), "b": ("BF16", 2)})
CONFIG = b'{"model_type": "llama"}'
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
Files = dict[str, bytes]


def index(*files: str) -> bytes:
    return json.dumps({"weight_map": {f"layer.{number}": file for number, file in enumerate(files)}}).encode()


SHARDED: Files = {
    "config.json": CONFIG,
    "tokenizer.json": b"{}",
    "model.safetensors.index.json": index(FIRST, SECOND, FIRST),
    FIRST: WHOLE,
    SECOND: WHOLE,
}
MISTRAL: Files = {"params.json": b'{"dim": 8}', "consolidated.safetensors": WHOLE}


def written(folder: Path, files: Files) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
