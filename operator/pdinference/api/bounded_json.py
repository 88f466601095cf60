"""Parser for untrusted JSON that checks limits on size, depth and number of values before it parses.

`json.loads` recurses for each level, and small containers take up to thirty times the memory of their text. So a scan
of the bytes first counts levels, values and members. It works in pieces, in a few hundred kilobytes, and mostly in C.

Tests: tests/runner/test_hostile_lines.py, tests/models/files/test_hostile_files.py
"""

import codecs
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

_PIECE = 1 << 16
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},:"))
_NOT_BRACKETS = b",:"
_SPACES = b" \t\n\r"
_STEPS = [{ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}.get(byte, 0) for byte in range(256)]


class BoundedJsonError(ValueError):
    """Data is not JSON or exceeds the limits. The message is a clause without a subject."""


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Limits of the parser.

    Attributes:
        size: Size in bytes.
        depth: Nesting of arrays and objects.
        values: Commas and opening brackets, which is about the number of values.
        members: Members of all objects together.
        digits: Consecutive digits of a number.
        spaces: White space between values; None for as much as there is.
    """

    size: int
    depth: int = 64
    values: int = 1_000_000
    members: int = 100_000
    digits: int = 1000
    spaces: int | None = None


def measure(data: bytes, limits: JsonLimits) -> None:
    """Check that data is UTF-8 and within the limits. It need not be valid JSON.

    The counts are upper bounds for any text that a JSON parser accepts.

    Raises:
        BoundedJsonError: The data exceeds a limit or is not UTF-8.
    """
    if len(data) > limits.size:
        raise BoundedJsonError(f"is larger than {limits.size:,} bytes")
    if not _is_plain(data, limits):
        for _ in measured(data, limits):
            pass


def measured(data: bytes, limits: JsonLimits) -> Iterator[None]:
    """Check the same, but for the size, and pause after every 64 KiB.

    Raises:
        BoundedJsonError: The data exceeds a limit or is not UTF-8.
    """
    return _Scan(limits).run(data)


def _is_plain(data: bytes, limits: JsonLimits) -> bool:
    """Whether a short text is within the limits even without excluding strings. This holds for nearly all texts."""
    opened = data.count(b"[") + data.count(b"{")
    return (
        len(data) <= _PIECE
        and opened <= limits.depth
        and opened + data.count(b",") <= limits.values
        and data.count(b":") <= limits.members
        and _long_number(limits).search(data) is None
        and _is_utf8(data)
    )


def _long_number(limits: JsonLimits) -> re.Pattern[bytes]:
    return re.compile(rb"[0-9]{%d}" % (limits.digits + 1))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def loads(data: bytes, limits: JsonLimits, *, not_finite: Literal["refuse", "unknown"] = "refuse") -> Any:
    """Parse a JSON text. If an object has duplicate members, the last one counts, as in `json.loads`.

    Args:
        data: The text in UTF-8.
        limits: The limits.
        not_finite: Whether NaN, Infinity and numbers beyond a float raise an error or become None.

    Raises:
        BoundedJsonError: The text is not JSON, exceeds a limit, or has unpaired surrogates.
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
        raise BoundedJsonError("has an unpaired surrogate, which is not a character") from None
    except (ValueError, RecursionError):
        raise BoundedJsonError("is not valid JSON") from None
    return value


class _Scan:
    """Counts structural characters outside strings.

    Backslashes occur only in strings. After removing pairs of backslashes and then escaped quotes, the text between two
    quotes is the content of a string.
    """

    def __init__(self, limits: JsonLimits) -> None:
        self._limits = limits
        self._long_number = _long_number(limits)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._backslash = b""
        self._in_string = False
        self._tail = b""
        self._depth = self._values = self._members = self._spaces = 0

    def run(self, data: bytes) -> Iterator[None]:
        try:
            for start in range(0, len(data), _PIECE):
                piece = data[start : start + _PIECE]
                self._decoder.decode(piece)
                self._count(self._outside(piece))
                yield
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
        if self._limits.spaces is not None:
            self._spaces += len(outside) - len(outside.translate(None, _SPACES))
            if self._spaces > self._limits.spaces:
                raise BoundedJsonError(f"has more than {self._limits.spaces:,} spaces between values")
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
