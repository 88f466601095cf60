"""JSON that strangers wrote: measured before it is parsed, so that neither memory nor recursion can run out.

`json.loads` recurses once a level and makes up to thirty times its input of small containers. So a scan of the bytes
counts levels, values and members first. It runs in pieces, needs a few hundred kilobytes, and mostly runs in C.
"""

import codecs
import json
import math
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

_PIECE = 1 << 16
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},:"))
_NOT_BRACKETS = b",:"
_STEPS = [{ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}.get(byte, 0) for byte in range(256)]


class BoundedJsonError(ValueError):
    """Bytes that are no JSON, or more of it than is read. The message is a clause without a subject."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is read.

    Attributes:
        size: Bytes.
        depth: Arrays and objects within each other.
        values: Commas and opening brackets, of which a text has about as many as values.
        members: Members of all objects together.
        digits: Digits in a row, in a number.
    """

    size: int
    depth: int = 64
    values: int = 1_000_000
    members: int = 100_000
    digits: int = 1000


def measure(data: bytes, limits: Limits) -> None:
    """Require that data keeps the limits and is UTF-8; whether it is JSON is left to a parser.

    Whatever a parser accepts is never deeper or larger than what is counted here.

    Raises:
        BoundedJsonError: It does not.
    """
    if len(data) > limits.size:
        raise BoundedJsonError(f"is larger than {limits.size:,} bytes")
    _Scan(limits).run(data)


def loads(data: bytes, limits: Limits, *, not_finite: Literal["refuse", "unknown"] = "refuse") -> Any:
    """The value of a JSON text. Of members that occur twice the last counts, as everywhere in Python.

    Args:
        data: The text, in UTF-8.
        limits: How much is read.
        not_finite: What becomes of NaN, Infinity and numbers beyond a float: an error, or None.

    Raises:
        BoundedJsonError: It is no JSON, beyond the limits, or has characters that no UTF-8 can hold.
    """
    measure(data, limits)

    def constant(name: str) -> None:
        if not_finite == "refuse":
            raise BoundedJsonError(f"has {name[:20]}, which is not a number in JSON")

    def number(text: str) -> float | None:
        value = float(text)
        if math.isfinite(value):
            return value
        constant(text)
        return None

    try:
        value = json.loads(data.decode(), parse_constant=constant, parse_float=number)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()
    except BoundedJsonError:
        raise
    except json.JSONDecodeError as error:
        raise BoundedJsonError(f"is not valid JSON: {error}") from None
    except UnicodeEncodeError:
        raise BoundedJsonError("has half of a surrogate pair, which is no character") from None
    except (ValueError, RecursionError):
        raise BoundedJsonError("is not valid JSON") from None
    return value


class _Scan:
    """Counts what is outside of strings.

    Backslashes are legal in strings only, so that a pair of them can be left out wherever it is, and then an escaped
    quote; what is left between two quotes is the inside of a string.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._long_number = re.compile(rb"[0-9]{%d}" % (limits.digits + 1))
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._backslash = b""
        self._in_string = False
        self._tail = b""
        self._depth = self._values = self._members = 0

    def run(self, data: bytes) -> None:
        try:
            for start in range(0, len(data), _PIECE):
                piece = data[start : start + _PIECE]
                self._decoder.decode(piece)
                self._count(self._outside(piece))
            self._decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise BoundedJsonError("is not UTF-8 text") from None

    def _outside(self, piece: bytes) -> bytes:
        if self._backslash or b"\\" in piece:
            piece = (self._backslash + piece).replace(b"\\\\", b"")
            self._backslash = b"\\" if piece.endswith(b"\\") else b""
            piece = piece.removesuffix(b"\\").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        return outside

    def _count(self, outside: bytes) -> None:
        number = self._tail + outside
        if self._long_number.search(number):
            raise BoundedJsonError(f"has a number of more than {self._limits.digits:,} digits")
        self._tail = number[-self._limits.digits :]
        structure = outside.translate(None, _NOT_STRUCTURE)
        self._values += structure.count(b",") + structure.count(b"[") + structure.count(b"{")
        self._members += structure.count(b":")
        if self._values > self._limits.values or self._members > self._limits.members:
            raise BoundedJsonError(
                f"has more than {self._limits.values:,} values or {self._limits.members:,} members of objects"
            )
        brackets = structure.translate(None, _NOT_BRACKETS)
        levels = list(accumulate(map(_STEPS.__getitem__, brackets), initial=self._depth))
        if max(levels) > self._limits.depth:
            raise BoundedJsonError(f"has more than {self._limits.depth} levels")
        self._depth = max(0, levels[-1])
