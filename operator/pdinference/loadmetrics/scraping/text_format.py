"""Parser of single lines of Prometheus' text format, in linear time.

Tests: tests/loadmetrics/test_hostile_pods.py, tests/loadmetrics/test_exposition_fuzz.py
"""

import math
import re
from typing import Final, NamedTuple

from pdinference.loadmetrics.scraping.unreadable import Reason, UnreadableError

_LARGEST: Final = 1e15
"""Largest valid number: more than a million tokens per second for 30 years."""
_SMALLEST: Final = 1e-12
"""Smaller numbers count as 0, so that ratios stay finite."""
_MOST_LABELS: Final = 128  # the line of vLLM with the most labels has 38
_QUOTED: Final = 80

# Quantifiers of single characters are possessive to prevent backtracking. Those of optional groups are not: Python
# 3.11.2 matches the start of such a group instead of the whole, and would accept `1e` as a number.
_NAME: Final = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_LABEL: Final = re.compile(rb'[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+')
_VALUE: Final = re.compile(rb"[ \t]++([^ \t]++)(?:[ \t]++-?+[0-9]++)?[ \t\r]*+")
_NUMBER: Final = re.compile(rb"[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?")
_NO_NUMBERS: Final = frozenset({b"nan", b"inf", b"+inf", b"-inf"})


class Sample(NamedTuple):
    """One sample. `value` is NaN if it is not a number from 0 to 10^15."""

    name: bytes
    labels: dict[bytes, bytes]
    value: float


def name_of(line: bytes) -> bytes:
    """The metric name at the start of a line; empty for comments and other lines."""
    found = _NAME.match(line)
    return found[0] if found is not None else b""


def sample(line: bytes) -> Sample:
    """Parse one line.

    Raises:
        UnreadableError: The line is malformed.
    """
    name = name_of(line)
    labels, at = _labels(line, len(name))
    value = _VALUE.fullmatch(line, at)
    if not name or value is None:
        raise _malformed(line)
    return Sample(name, labels, _number(value[1], line))


def measured(text: bytes) -> float:
    """A number from 0 to 10^15; NaN for anything else."""
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not 0 <= value <= _LARGEST:
        return math.nan
    return value if value >= _SMALLEST else 0.0


def _labels(line: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """The labels at a position, and their end."""
    labels: dict[bytes, bytes] = {}
    if line[at : at + 1] != b"{":
        return labels, at
    at += 1
    for _ in range(_MOST_LABELS):
        if (found := _LABEL.match(line, at)) is None:
            break
        labels[found[1]] = found[2]
        at = found.end()
        if line[at : at + 1] != b",":
            break
        at += 1
    if line[at : at + 1] != b"}":
        raise _malformed(line)
    return labels, at + 1


def _number(text: bytes, line: bytes) -> float:
    if text.lower() in _NO_NUMBERS:
        return math.nan
    if not _NUMBER.fullmatch(text):
        raise _malformed(line)
    return measured(text)


def _malformed(line: bytes) -> UnreadableError:
    return UnreadableError(Reason.MALFORMED, f"not Prometheus' text format: {line[:_QUOTED]!r}")
