"""Reads values of untrusted YAML documents. Values of unexpected types count as absent.

Tests: tests/conversion/test_containers.py, tests/conversion/test_field_points.py
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pdinference.conversion.launch import Unresolved

Read = Callable[[str], str]
"""Replaces references in a text, for example those of Kubernetes or Compose."""


def mapping(value: Any) -> Mapping[str, Any]:
    """A map; empty if the value is not a map."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """The maps in a list."""
    return (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else iter(())


def text(value: Any) -> str | None:
    """A string, number or boolean as a string, in the form that a container gets."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


def number(value: Any) -> int | None:
    """A whole number, which may be written as text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return int(value) if re.fullmatch(r"\d{1,9}", str(value), re.ASCII) else None


def as_is(value: str) -> str:
    """A text without references."""
    return value


def texts(value: Any, read: Read = as_is) -> list[str]:
    """Strings of a list, with references replaced. A text that should be a list is its only item."""
    items = value if isinstance(value, list) else [] if isinstance(value, Mapping) else [value]
    return [read(found) for item in items if (found := text(item)) is not None]


def text_map(value: Any, read: Read = as_is) -> dict[str, str]:
    """String values of a map, with references replaced in the same way."""
    found = ((str(key), text(item)) for key, item in mapping(value).items())
    return {key: read(item) for key, item in found if item is not None}


def marked(value: str, *, unresolved: bool) -> str:
    """A text, marked if a part of it is not known."""
    return Unresolved(value) if unresolved else value
