"""Messages for pydantic's validation errors, worded like those of the API server where it has them."""

import json
from typing import Any

from pydantic_core import ErrorDetails

_SENTENCES = {
    "missing": "This field is required.",
    "extra_forbidden": "Unknown field. {hint} `kubectl explain {short_name}.spec --recursive` lists all fields.",
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


def sentence(details: ErrorDetails, short_name: str, hint: str = "") -> str:
    """The message for one error.

    Args:
        details: The error from pydantic.
        short_name: Short name of the kind, for `kubectl explain`.
        hint: For an unknown field, the sentence that names the field that was meant.
    """
    if known := _SENTENCES.get(details["type"]):
        words = {"short_name": short_name, "hint": hint or "Check the spelling;"}
        return known.format_map({**details.get("ctx", {}), **words})
    value = _shown(details["input"])
    if wanted := _TYPES.get(details["type"]):
        return f"This must be of type {wanted}, not {value}."
    expected = details["msg"].replace("Input", "This", 1).replace("'", '"')
    return f"{expected}, not {value}."


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
