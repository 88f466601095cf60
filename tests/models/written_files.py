"""Files of models, as small as they may be."""

import json
import os
import struct
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
