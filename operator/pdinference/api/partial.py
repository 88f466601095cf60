"""Removes the parts of a document that do not fit the schema, so that the rest can be validated.

Tests: tests/api/test_validation.py, tests/checks/test_examine.py
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
Document = dict[str, Any]

StandIns = Mapping[Location, Any]
"""Values for required members that are missing, without which no other field could be validated."""

_ABSENT = object()


def unfit(errors: Iterable[ErrorDetails], stand_ins: StandIns) -> set[Location]:
    """Locations to remove: values that do not fit, and objects without a required member."""
    locations = set()
    for details in errors:
        location = _steps(details["loc"])
        if details["type"] != "missing":
            locations.add(location)
        elif not any(known[: len(location)] == location for known in stand_ins):
            locations.add(location[:-1])
    return locations - {()}


def without(document: Mapping[str, Any], locations: Collection[Location], stand_ins: StandIns) -> Document:
    """A copy without these members and items, and with stand-ins for missing required members."""
    copy = deepcopy(dict(document))
    for location in sorted(locations, key=_order, reverse=True):
        holder: Any = copy
        for step in location[:-1]:
            holder = _member(holder, step)
        if _member(holder, location[-1], absent=_ABSENT) is not _ABSENT:
            del holder[location[-1]]
    for location, value in stand_ins.items():
        _complete(copy, location, value)
    return copy


def doubtful(location: Location) -> Location:
    """The location whose problems are unreliable after a removal: the list of a removed item, or the whole item."""
    indexes = [index for index, step in enumerate(location) if isinstance(step, int)]
    if not indexes:
        return location
    return location[:-1] if indexes[-1] == len(location) - 1 else location[: indexes[-1] + 1]


def path(location: Location) -> str:
    """A location as text: `spec.decode.placement.tolerations[0].key`."""
    text = ""
    for step in _steps(location):
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def parents(field: str) -> Iterator[str]:
    """A field and all its parents."""
    yield field
    for index, character in enumerate(field):
        if character in ".[":
            yield field[:index]


def _steps(location: Location) -> Location:
    return tuple(step for step in location if step != "[key]")  # pydantic's mark for "the key itself, not its value"


def _complete(document: Document, location: Location, value: Any) -> None:
    holder: Any = document
    for step in location[:-1]:
        if not isinstance(holder.setdefault(step, {}), dict):
            return
        holder = holder[step]
    holder.setdefault(location[-1], value)


def _member(holder: Any, step: int | str, absent: Any = None) -> Any:
    if isinstance(holder, dict):
        return holder.get(step, absent)
    if isinstance(holder, list) and isinstance(step, int) and step < len(holder):
        return holder[step]
    return absent


def _order(location: Location) -> list[tuple[bool, int, str]]:
    """Sort key that puts later items of a list last, so that deleting from the end keeps the other indexes valid."""
    return [(isinstance(step, int), step if isinstance(step, int) else 0, str(step)) for step in location]
