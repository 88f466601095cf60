"""Sanitizes untrusted text for messages, status and annotations.

Tests: tests/planning/test_reported.py
"""

import re
from collections.abc import Sequence

_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff]+")
"""Control characters, characters that change the direction of text, and unpaired surrogates."""


def plain(text: str, most: int) -> str:
    """Text on one line without control characters, truncated to a number of characters."""
    cleaned = _UNFIT.sub(" ", text[: most + 1])
    return cleaned if len(text) <= most else f"{cleaned[: most - 1]}…"


def first_of(texts: Sequence[str], most: int) -> str:
    """The first texts, and how many others there are: "a, b and 3 more"."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
