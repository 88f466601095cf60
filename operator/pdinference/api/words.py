"""Messages for pydantic's validation errors, worded like those of the API server where it has them.

Tests: tests/api/test_validation.py
"""

import json
from typing import Any

from pydantic_core import ErrorDetails

_SENTENCES = {
    "missing": "This field is required.",
    "extra_forbidden": "Unknown field. {hint}",
    "value_error": "{error}",
    "string_too_long": "Too long: use at most {max_length} characters.",
    "too_long": "This must have at most {max_length} items, not {actual_length}.",
    "too_short": "This should have at least {min_length} items, not {actual_length}.",
}
_TYPES = {
    "int_type": "integer",
    "float_type": "number",
    "bool_type": "boolean",
    "string_type": "string",
    "list_type": "array",
    "dict_type": "object",
    "model_type": "object",
}
_LONGEST_VALUE = 60
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def sentence(details: ErrorDetails, hint: str = "") -> str:
    """The message for one error.

    Args:
        details: The error from pydantic.
        hint: For an unknown field and a value that is no object: the sentence that names the fields to use.
    """
    if known := _SENTENCES.get(details["type"]):
        return known.format_map({**details.get("ctx", {}), "hint": hint or "Check the spelling."})
    value = _shown(details["input"])
    if wanted := _TYPES.get(details["type"]):
        remedy = hint or _rewritten(wanted, details["input"])
        return f"This must be of type {wanted}, not {value}.{f' {remedy}' if remedy else ''}"
    expected = details["msg"].replace("Input", "This", 1).replace("'", '"')
    return f"{expected}, not {value}."


def _rewritten(wanted: str, value: Any) -> str:
    """How to write a value that has only the wrong type; empty if that is not known."""
    match wanted, value:
        case "integer", str() if value.isascii() and value.isdecimal():
            return f"Write it without quotes: {_shown(int(value[:_LONGEST_VALUE]))}."
        case "string", bool():
            return f'Write it in quotes: "{_shown(value)}".'
        case "array", str():
            return f"Write a list: [{_shown(value)}]."
        case "array", dict():
            return "Write a list, with a dash before each item."
        case "object", list():
            return "Write `name: value` for each member, without a dash."
    return ""


def _shown(value: Any) -> str:
    """The start of a value as JSON. The rest is not encoded, because it may hold millions of values."""
    text = ""
    try:
        for piece in _ENCODER.iterencode(value):
            text += piece
            if len(text) > _LONGEST_VALUE:
                break
    except (TypeError, ValueError, RecursionError):  # YAML allows more than JSON: keys of any type, infinite numbers
        return f"a value of type {type(value).__name__}"
    return cut(text, _LONGEST_VALUE)


def cut(text: str, most: int) -> str:
    """Truncate untrusted text, with an ellipsis, and escape characters that are not printable."""
    begun = text[:most]
    if not begun.isprintable():
        begun = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in begun)
    return begun if len(text) <= most and len(begun) <= 2 * most else f"{begun[: 2 * most]}…"
