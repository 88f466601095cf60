"""Files of a hostile publisher: invalid files, and links that must not be followed."""

import json
import struct
from typing import Any

FIRST = "model-00001.safetensors"


def index(*files: Any) -> bytes:
    return json.dumps({"weight_map": {f"layer.{number}": file for number, file in enumerate(files)}}).encode()


def with_length(length: int, text: bytes = b"{}") -> bytes:
    return struct.pack("<Q", length) + text


def with_header(text: bytes, rest: int = 0) -> bytes:
    return with_length(len(text), text) + bytes(rest)


def tensors(rest: int = 0, **entries: Any) -> bytes:
    """A file of tensors, each as `(dtype, shape, offsets)` or as anything else."""
    header = {
        name: dict(zip(("dtype", "shape", "data_offsets"), entry, strict=True)) if isinstance(entry, tuple) else entry
        for name, entry in entries.items()
    }
    return with_header(json.dumps(header).encode(), rest)


CONFIGS: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"model_type": ',
    "a list": b"[]",
    "a number": b"7",
    "invalid UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "NULs": bytes(1000),
    "levels": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "65 levels": b"[" * 65 + b"]" * 65,
    "levels without end": b"[" * 4_000_000,
    "5,000 digits": b'{"num_hidden_layers": ' + b"9" * 5000 + b"}",
    "too large": b'{"a": "' + b"x" * (5 << 20) + b'"}',
    "too many values": b'{"a": [' + b"[]," * 1_000_000 + b"0]}",
    "too many members": b'{"a": {' + b'"":0,' * 60_000 + b'"":0}}',
    "half a pair": b'{"model_type": "\\ud800"}',
    "a wrong escape": b'{"a": "\\x41"}',
    "a program": b"#!/bin/sh\nrm -rf /\n",
    "gzip": b"\x1f\x8b\x08\x00",
}
"""Contents of config.json, generation_config.json and adapter_config.json that are none."""

INDEXES: dict[str, bytes] = {
    **{name: CONFIGS[name] for name in ("nothing", "half", "a list", "invalid UTF-8", "levels", "levels without end")},
    "another folder": index("../../etc/passwd"),
    "an absolute path": index("/etc/passwd"),
    "dots": index("a/../../b.safetensors"),
    "the folder": index("."),
    "an empty name": index(""),
    "NUL": index("a\0b"),
    "a line": index("a\nb"),
    "colours": index("\x1b[31mred"),
    "the other direction": index("a\u202eb"),
    "half a pair": b'{"weight_map": {"a": "\\ud800"}}',
    "a backslash": index("..\\..\\x"),
    "a long name": index("x" * 300),
    "a long path": index("x/" * 1000 + "x"),
    "no text": index(7),
    "a list of names": index(["a"]),
    "null": index(None),
    "no map": b'{"weight_map": []}',
    "no weights": b'{"metadata": {}}',
    "a million entries": b'{"weight_map": {' + b",".join(b'"%d":"a"' % n for n in range(1_000_000)) + b"}}",
    "100,000 files": index(*(f"{number}.safetensors" for number in range(100_000))),
    "too large": b'{"weight_map": {"a": "' + b"x" * (65 << 20) + b'"}}',
}
"""Contents of model.safetensors.index.json that are none."""

WEIGHTS: dict[str, bytes] = {
    "nothing": b"",
    "seven bytes": bytes(7),
    "a length of nothing": with_length(0),
    "a length beyond the file": with_length(3),
    "the largest length": with_length(2**64 - 1),
    "a negative length": struct.pack("<q", -1) + b"{}",
    "2**63": with_length(2**63),
    "2**53": with_length(2**53),
    "100 MB that are not there": with_length(100_000_000),
    "100 MB and one": with_length(100_000_001),
    "a list": with_header(b"[]"),
    "half": with_header(b'{"a":'),
    "invalid UTF-8": with_header(b'{"\xff": {}}'),
    "levels": with_header(b'{"a":' * 100_000),
    "levels of lists": with_header(b"[" * 10_000_000),
    "5,000 digits": with_header(b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,1]}}', 1),
    "NaN": with_header(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', 1),
    "a float": tensors(1, a=("U8", [1.0], [0, 1])),
    "true": tensors(1, a=("U8", [True], [0, 1])),
    "true for an offset": tensors(1, a=("U8", [1], [False, True])),
    "a negative size": tensors(1, a=("U8", [-1], [0, 1])),
    "two negative sizes": tensors(1, a=("U8", [-1, -1], [0, 1])),
    "negative offsets": tensors(1, a=("U8", [1], [-1, 0])),
    "offsets backwards": tensors(2, a=("U8", [1], [2, 1])),
    "three offsets": tensors(1, a=("U8", [1], [0, 1, 2])),
    "one offset": tensors(1, a=("U8", [1], [0])),
    "text for offsets": tensors(1, a=("U8", [1], "01")),
    "offsets beyond everything": tensors(1, a=("U8", [2**62], [0, 2**62])),
    "offsets beyond 64 bits": tensors(1, a=("U8", [2**70], [0, 2**70])),
    "a shape that overflows": tensors(0, a=("U8", [2**52] * 30, [0, 0])),
    "a shape of a million": tensors(1, a=("U8", [1] * 1_000_000, [0, 1])),
    "a shape that lies": tensors(2, a=("BF16", [1000], [0, 2])),
    "a shape that lies downwards": tensors(2000, a=("BF16", [1], [0, 2000])),
    "an overlap": tensors(8, a=("U8", [6], [0, 6]), b=("U8", [6], [2, 8])),
    "the same bytes twice": tensors(4, a=("U8", [4], [0, 4]), b=("U8", [4], [0, 4])),
    "a hole": tensors(8, a=("U8", [2], [0, 2]), b=("U8", [2], [6, 8])),
    "a hole in front": tensors(8, a=("U8", [4], [4, 8])),
    "a number for the type": tensors(1, a=(8, [1], [0, 1])),
    "a long type": tensors(1, a=("U" * 1000, [1], [0, 1])),
    "no type": tensors(1, a={"shape": [1], "data_offsets": [0, 1]}),
    "no shape": tensors(1, a={"dtype": "U8", "data_offsets": [0, 1]}),
    "no offsets": tensors(1, a={"dtype": "U8", "shape": [1]}),
    "an entry of text": tensors(1, a="text"),
    "an entry of null": tensors(1, a=None),
    "too short": tensors(3, a=("U8", [4], [0, 4])),
    "too long": tensors(5, a=("U8", [4], [0, 4])),
    "too many tensors": with_header(
        b"{" + b",".join(b'"%d":{"dtype":"","shape":[],"data_offsets":[0,0]}' % n for n in range(300_000)) + b"}"
    ),
    "a web page": b"<!DOCTYPE html><html>" + bytes(1000),
}
"""Contents of a safetensors file that no library opens, or that are too much to look at."""

NAMES: dict[str, str] = {
    "a parent": "../x",
    "a parent within": "a/../../x",
    "absolute": "/etc/cron.d/x",
    "the folder": ".",
    "empty": "",
    "two slashes": "a//b",
    "a slash at the end": "a/",
    "dots as a folder": "a/./b",
    "NUL": "a\0b",
    "a line": "a\nb",
    "an escape": "\x1b]0;x\x07",
    "the other direction": "a\u202eb",
    "half a pair": "\ud800",
    "a backslash": "a\\..\\b",
    "a long part": "x" * 256,
    "long in bytes": "é" * 200,
    "long": "a/" * 600 + "a",
}
"""Names of files that no repository has."""
