"""What pods write into annotations and termination messages: typed and bounded. What does not fit is unknown."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pdinference.api import plain_text
from pdinference.api.bounded_json import BoundedJsonError, Limits, loads

LONGEST_TEXT: Final = 1024
_LARGEST: Final = 2**53
_DIGITS_OF_INT64: Final = 18
_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}", re.ASCII)


def report(text: str, longest: int) -> Mapping[str, Any]:
    """The members of a JSON object; none when it is not one, too long, too deep, or has a number beyond 64 bits.

    Args:
        text: What the pod wrote.
        longest: Bytes that are read.
    """
    try:
        content = loads(text.encode(), Limits(size=longest, digits=_DIGITS_OF_INT64))
    except (BoundedJsonError, UnicodeEncodeError):
        return {}
    return content if isinstance(content, dict) else {}


def count(value: object) -> int | None:
    """A whole number from 0 to 2^53; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else None


def plain(value: object, longest: int = LONGEST_TEXT) -> str:
    """A text for a person: no control characters, and not longer than this; empty for what is no text."""
    return plain_text.plain(value, longest) if isinstance(value, str) else ""


def reason(value: object, default: str) -> str:
    """One CamelCase word, as conditions need it."""
    return value if isinstance(value, str) and _REASON.fullmatch(value) else default
