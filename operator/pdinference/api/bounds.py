"""Limits on the size and depth of a document, checked before all other validation.

The other checks take time and memory in proportion to the document, and may recurse into it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_SPEC_BYTES: Final = 128 * 1024
"""Maximum size of the spec as compact JSON."""
MAX_RAW_SPEC_BYTES: Final = 6 * MAX_SPEC_BYTES
r"""Maximum size of a spec as the API server sends it. It escapes some characters, such as < as \u003c. A larger spec is
not parsed to determine its exact size."""
MAX_DEPTH: Final = 64
"""Maximum nesting of objects and lists, including the document itself."""
MAX_VALUES: Final = 16_384
"""Maximum number of values in a document: members of objects and items of lists."""

_MAX_CHARACTERS: Final = 4 * 2**20
"""Maximum size up to which the spec is measured exactly. The API server accepts 3 MiB."""
_INT64: Final = range(-(2**63), 2**63)
_NOT_CHECKED: Final = frozenset({"status"})
_NOT_CHECKED_METADATA: Final = frozenset({"managedFields"})
"""Fields that the API server writes. They repeat the structure of the spec and are not validated."""
_PATH_PARTS: Final = 6
_KEY: Final = "has a key that is not a string. Put quotes around the key."

Broken = tuple[str, str]
"""A field's path, empty for the whole document, and what is wrong with it."""


def broken_bound(document: object) -> Broken | None:
    """The first limit that a document exceeds; None if it exceeds none."""
    if not isinstance(document, Mapping):
        return "", "expected an object (key: value)"
    if not _has_text_keys(document):
        return "", _KEY
    if (broken := _broken_structure(_checked_part(document))) is not None:
        return broken
    size = len(_json(document.get("spec")))
    return ("spec", too_large(size)) if size > MAX_SPEC_BYTES else None


def too_large(size: int) -> str:
    """The message for a spec of this size in bytes."""
    return (
        f"is {size} bytes of JSON; the limit is {MAX_SPEC_BYTES} bytes. "
        "Move large parts to a ConfigMap and mount it with podTemplate."
    )


TOO_DEEP: Final = f"is nested deeper than {MAX_DEPTH} levels. Use fewer levels of objects and lists."


def _checked_part(document: Mapping[Any, Any]) -> dict[Any, Any]:
    part: dict[Any, Any] = {key: value for key, value in document.items() if key not in _NOT_CHECKED}
    if isinstance(metadata := part.get("metadata"), Mapping):
        part["metadata"] = {key: value for key, value in metadata.items() if key not in _NOT_CHECKED_METADATA}
    return part


def _broken_structure(document: Mapping[Any, Any]) -> Broken | None:
    """The first violation of the structural limits. Iterative, and bounded even for YAML aliases that expand."""
    open_: list[tuple[str, Iterator[tuple[Any, Any]]]] = [("", _members(document))]
    values, characters = 0, 0
    while open_:
        path, members = open_[-1]
        step = next(members, None)
        if step is None:
            open_.pop()
            continue
        key, value = step
        where = _path(path, key, len(open_))
        values += 1
        characters += len(value) if isinstance(value, str | bytes) else 1
        if values > MAX_VALUES:
            return where, f"exceeds the limit of {MAX_VALUES} values in a document. Use fewer values."
        if characters > _MAX_CHARACTERS:
            return where, f"exceeds the limit of {_MAX_CHARACTERS} characters in a document. Use fewer characters."
        if wrong := _wrong(key, value):
            return where.encode(errors="replace").decode(), wrong
        if isinstance(value, Mapping | list | tuple):
            if len(open_) >= MAX_DEPTH:
                return where, TOO_DEEP
            if isinstance(value, Mapping) and not _has_text_keys(value):
                return where, _KEY
            open_.append((where, _members(value)))
    return None


def _wrong(key: object, value: object) -> str:
    """The problem of a member's key or scalar value; empty if there is none."""
    if isinstance(value, int) and value not in _INT64:
        return "is a number of more than 64 bits. Use a smaller number."
    for text in (key, value):
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return "has an unpaired surrogate, which is not a character. Remove it."
    return ""


def _has_text_keys(value: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) for key in value)


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    return iter(value.items()) if isinstance(value, Mapping) else iter(enumerate(value))


def _path(path: str, key: str | int, depth: int) -> str:
    """The path of a member, truncated to the first levels."""
    if depth > _PATH_PARTS:
        return path
    shown = str(key)[:80]
    if isinstance(key, int):
        return f"{path}[{shown}]"
    return f"{path}.{shown}" if path else shown


def _json(value: object) -> bytes:
    """Compact JSON. Values that JSON lacks, such as dates in YAML, become text."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    return text.encode()
