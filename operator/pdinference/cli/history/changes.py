"""Differences between two specs, as one line or as a YAML diff.

Tests: tests/cli/test_history.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Final

import yaml

from pdinference.api.plain_text import plain
from pdinference.cli.plain_yaml import PlainDumper

Json = Mapping[str, Any]

ABSENT: Final = object()
_MOST_SHOWN: Final = 3
_LONGEST_PATH: Final = 60
_LONGEST_VALUE: Final = 40
_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs.

    Attributes:
        path: Path of the field in the spec, such as `decode.parallelism.tensor`.
    """

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        path = plain(self.path, _LONGEST_PATH)
        if self.before is ABSENT:
            return f"{path} {_shown(self.after)} added"
        if self.after is ABSENT:
            return f"{path} removed"
        return f"{path} {_shown(self.before)} -> {_shown(self.after)}"


def changes(before: Json, after: Json, path: str = "") -> Iterator[FieldChange]:
    """All fields that differ, sorted by path. A list is one field."""
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, ABSENT), after.get(key, ABSENT)
        where = f"{path}.{key}" if path else key
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from changes(old, new, where)
        elif old != new:
            yield FieldChange(where, old, new)


def in_one_line(before: Json, after: Json) -> str:
    """The first changes in one line."""
    found = [str(change) for change in changes(before, after)]
    more = len(found) - _MOST_SHOWN
    return ", ".join(found[:_MOST_SHOWN]) + (f", and {more} more" if more > 0 else "")


def diff(before: Json, after: Json, name_before: str, name_after: str) -> Iterator[str]:
    """A unified diff of two specs as YAML; empty if they are equal."""
    old, new = _yaml(before).splitlines(), _yaml(after).splitlines()
    for line in unified_diff(old, new, name_before, name_after, lineterm=""):
        yield plain(line, len(line))


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{...}"
    return "[...]" if isinstance(value, list) else plain(str(value), _LONGEST_VALUE)


def _yaml(spec: Json) -> str:
    text: str = yaml.dump({"spec": spec}, Dumper=PlainDumper, sort_keys=True, default_flow_style=False, width=_WIDTH)
    return text
