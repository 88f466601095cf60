"""What pods write into annotations and termination messages: typed and bounded. What does not fit is unknown."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

LONGEST_TEXT: Final = 1024
_LARGEST: Final = 2**53
_MOST_DIGITS: Final = 18
_DEEPEST: Final = 64
_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}", re.ASCII)
_NOT_PLAIN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def report(text: str, longest: int) -> Mapping[str, Any]:
    """The members of a JSON object; none when it is not one, too long, too deep, or has a number that JSON cannot hold.

    Args:
        text: What the pod wrote.
        longest: Characters that are read.
    """
    if len(text) > longest:
        return {}
    try:
        content = json.loads(text, parse_constant=_refuse, parse_int=_whole, parse_float=_finite)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) and _is_storable(content, _DEEPEST) else {}


def count(value: object) -> int | None:
    """A whole number from 0 to 2^53; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else None


def plain(value: object, longest: int = LONGEST_TEXT) -> str:
    """A text for a person: no control characters, and not longer than this; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    text = _NOT_PLAIN.sub(" ", value[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def reason(value: object, default: str) -> str:
    """One CamelCase word, as conditions need it."""
    return value if isinstance(value, str) and _REASON.fullmatch(value) else default


def _is_storable(value: object, depth: int) -> bool:
    """Whether the API server keeps it as it is."""
    if isinstance(value, dict):
        return depth > 0 and all(_is_storable(key, 0) and _is_storable(each, depth - 1) for key, each in value.items())
    if isinstance(value, list):
        return depth > 0 and all(_is_storable(each, depth - 1) for each in value)
    return not isinstance(value, str) or value.isascii() or not re.search("[\ud800-\udfff]", value)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number has more than 18 digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if abs(value) == float("inf"):
        raise ValueError("a number is too large")
    return value
