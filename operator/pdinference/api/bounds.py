"""How large and how deep a document may be: checked before anything else looks at it.

Everything behind this check takes time and memory in proportion to the document, and may recurse into it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_SPEC_BYTES: Final = 128 * 1024
"""Of the spec as compact JSON."""
MAX_RAW_SPEC_BYTES: Final = 6 * MAX_SPEC_BYTES
r"""Of a spec as the API server sends it, which escapes some characters, such as < as \u003c. A spec beyond this is not
parsed to learn its exact size."""
MAX_DEPTH: Final = 64
"""Objects and lists inside each other, the document itself included."""
MAX_VALUES: Final = 16_384
"""Values in a document: members of objects and items of lists."""

_MAX_CHARACTERS: Final = 4 * 2**20
"""Up to here the spec is measured exactly. The API server accepts 3 MiB."""
_INT64: Final = range(-(2**63), 2**63)
_NOT_CHECKED: Final = frozenset({"status"})
_NOT_CHECKED_METADATA: Final = frozenset({"managedFields"})
"""The API server writes these; they repeat the spec's structure and are never examined."""
_PATH_PARTS: Final = 6
_KEY: Final = "has a key that is not a string. Put quotes around the key."

Broken = tuple[str, str]
"""A field's path, empty for the whole document, and what is wrong with it."""


def broken_bound(document: object) -> Broken | None:
    """The first bound that a document exceeds; None when it may be examined."""
    if not isinstance(document, Mapping):
        return "", "expected an object (key: value)"
    if not _has_text_keys(document):
        return "", _KEY
    if (broken := _broken_structure(_checked_part(document))) is not None:
        return broken
    size = len(_json(document.get("spec")))
    return ("spec", too_large(size)) if size > MAX_SPEC_BYTES else None


def too_large(size: int) -> str:
    """What is wrong with a spec of so many bytes."""
    return (
        f"is {size} bytes of JSON; at most {MAX_SPEC_BYTES} are allowed. "
        "Move large parts to a ConfigMap and mount it with podTemplate."
    )


TOO_DEEP: Final = f"is nested deeper than {MAX_DEPTH} levels. Use fewer levels of objects and lists."


def _checked_part(document: Mapping[Any, Any]) -> dict[Any, Any]:
    part: dict[Any, Any] = {key: value for key, value in document.items() if key not in _NOT_CHECKED}
    if isinstance(metadata := part.get("metadata"), Mapping):
        part["metadata"] = {key: value for key, value in metadata.items() if key not in _NOT_CHECKED_METADATA}
    return part


def _broken_structure(document: Mapping[Any, Any]) -> Broken | None:
    """Without recursion, and without following the aliases of a YAML file for longer than the bounds allow."""
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
            return where, f"the document has more than {MAX_VALUES} values up to here. Use fewer."
        if characters > _MAX_CHARACTERS:
            return where, f"the document has more than {_MAX_CHARACTERS} characters up to here. Use fewer."
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
    """What is wrong with a member's key or with a value that is neither an object nor a list; empty when nothing is."""
    if isinstance(value, int) and value not in _INT64:
        return "is a number beyond 64 bits. Use a smaller number."
    for text in (key, value):
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return "has half of a surrogate pair, which is no character. Remove it."
    return ""


def _has_text_keys(value: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) for key in value)


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    return iter(value.items()) if isinstance(value, Mapping) else iter(enumerate(value))


def _path(path: str, key: str | int, depth: int) -> str:
    """The path of a member; only its beginning where it is deep."""
    if depth > _PATH_PARTS:
        return path
    shown = str(key)[:80]
    if isinstance(key, int):
        return f"{path}[{shown}]"
    return f"{path}.{shown}" if path else shown


def _json(value: object) -> bytes:
    """As compact JSON; what JSON cannot say, such as a date in YAML, counts as its text."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    return text.encode()
