"""Reads values of untrusted YAML documents. Values of unexpected types count as absent."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.conversion.launch import Unresolved


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


def texts(value: Any, replaced: re.Pattern[str]) -> list[str]:
    """Strings of a list, marked if they match the pattern of references that Kubernetes or Compose expands."""
    found = [text(item) for item in value] if isinstance(value, list) else []
    return [marked(item, replaced) for item in found if item is not None]


def text_map(value: Any, replaced: re.Pattern[str]) -> dict[str, str]:
    """String values of a map, marked in the same way."""
    found = ((str(key), text(item)) for key, item in mapping(value).items())
    return {key: marked(item, replaced) for key, item in found if item is not None}


def marked(value: str, replaced: re.Pattern[str]) -> str:
    """A string, marked if it matches."""
    return Unresolved(value) if replaced.search(value) else value
