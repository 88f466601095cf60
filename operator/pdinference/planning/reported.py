"""Reads what pods report in annotations and termination messages, with types and bounds. Invalid values are unknown."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pdinference.api import plain_text
from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, loads

LONGEST_TEXT: Final = 1024
_LARGEST: Final = 2**53
_DIGITS_OF_INT64: Final = 18
_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}", re.ASCII)


def report(text: str, longest: int) -> Mapping[str, Any]:
    """The members of a JSON object; empty for other text, and beyond the limits on length, depth and digits.

    Args:
        text: The pod's report.
        longest: Largest size in bytes.
    """
    try:
        content = loads(text.encode(), JsonLimits(size=longest, digits=_DIGITS_OF_INT64))
    except (BoundedJsonError, UnicodeEncodeError):
        return {}
    return content if isinstance(content, dict) else {}


def count(value: object) -> int | None:
    """A whole number from 0 to 2^53; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else None


def plain(value: object, longest: int = LONGEST_TEXT) -> str:
    """Text without control characters, shortened to `longest`; empty for anything but text."""
    return plain_text.plain(value, longest) if isinstance(value, str) else ""


def reason(value: object, default: str) -> str:
    """A CamelCase reason of a condition; the default for anything else."""
    return value if isinstance(value, str) and _REASON.fullmatch(value) else default
