"""Changes to a document like those of an attacker or a broken tool, the same for each seed."""

import copy
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Path = tuple[str | int, ...]


def _nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


_NUMBERS = [-1, 0, 1, 2**31, 2**31 - 1, 2**53, 2**63 - 1, 2**63, -(2**63), 10**400, 1.5, 1e308, 5e-324, -0.0]
_NO_NUMBERS = [float("nan"), float("inf"), float("-inf")]
_TEXTS = [
    "", " ", "a", "0", "-1", "true", "null", "1e999", "9" * 5000, "a" * 300, "a" * 70_000, "\0", "a\nb", "\u2028",
    "\ud800",
    "\u202e", "é" * 200, "😀", "../..", "/etc/passwd", "a/../../b", "$(VAR)", "$$(VAR)", "{{ x }}", "{% raw %}", "${x}",
    "--port=1", "-x", "`id`", "a: b", "|-", "<script>", "%s%n", "a.b.c", "A" * 64, "re:(a+)+$", "re:([a-z_.0-9]+)+!",
    "re:(", "re:(?!x)", "re:" + "(a?){30}" * 6, "1Gi", "9E", "1e99", "1n", "999999999999999999999999999E",
    "2026-01-01T00:00:00Z",
]  # fmt: skip
_LISTS = [[], [None], [[]], [{}], [True], [1, "a", None], ["a"] * 20_000, [[0]] * 5000, ["re:(a+)+$"] * 1025]
_MAPS: list[Any] = [
    {}, {"": 1}, {"a.b": {"[0]": 1}}, {"__proto__": 1}, {1: 1}, {None: 1}, {True: 2}, {"a\0": 1}, {"\ud800": 1},
    {f"k{i}": i for i in range(5000)}, {"name": {}}, {"name": ["vllm"]}, {"add": 5}, {"a" * 70_000: 1},
]  # fmt: skip
_DEEP = [_nested(depth, kind) for depth in (10, 63, 70, 500) for kind in ("list", "dict")]
VALUES: list[Any] = [None, True, False, *_NUMBERS, *_NO_NUMBERS, *_TEXTS, *_LISTS, *_MAPS, *_DEEP]


_MOST_VALUES = 400_000
"""In the 3 MiB that the API server accepts there is hardly room for more."""


def mutated(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A copy with one to four changes, no larger than the API server accepts."""
    with _deep_recursion():
        while not _is_small(made := _mutated(document, chance)):
            pass
        return made


def _is_small(value: Any, most: int = _MOST_VALUES) -> bool:
    waiting, seen = [value], 0
    while waiting and seen <= most:
        seen += 1
        if isinstance(top := waiting.pop(), dict | list):
            waiting.extend(top.values() if isinstance(top, dict) else top)
    return seen <= most


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """For copies of deep values here; what is tested keeps the usual limit."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


def _mutated(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    made = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4))):
        paths = list(_paths(made))
        if not paths:
            return made
        chance.choice(_CHANGES)(made, chance.choice(paths), chance)
    return made


def _paths(value: Any, path: Path = ()) -> list[Path]:
    if len(path) > 12:
        return []
    if isinstance(value, dict):
        members = list(value.items())[:200]
    elif isinstance(value, list):
        members = list(enumerate(value))[:50]
    else:
        return []
    return [found for key, member in members for found in ((*path, key), *_paths(member, (*path, key)))]


def _at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def _replace(document: Any, path: Path, chance: random.Random) -> None:
    _at(document, path[:-1])[path[-1]] = copy.deepcopy(chance.choice(VALUES))


def _delete(document: Any, path: Path, _: random.Random) -> None:
    del _at(document, path[:-1])[path[-1]]


def _duplicate(document: Any, path: Path, chance: random.Random) -> None:
    holder = _at(document, path[:-1])
    if isinstance(holder, list):
        copied = holder[int(path[-1])]
        most = (1, 2, 100) if _is_small(copied, _MOST_VALUES // 100) else (1,)
        holder.extend(copy.deepcopy(copied) for _ in range(chance.choice(most)))
    else:
        holder[f"{path[-1]}{chance.choice(('2', '', 'X', ' '))}"] = copy.deepcopy(holder[path[-1]])


def _swap(document: Any, path: Path, chance: random.Random) -> None:
    other = chance.choice(_paths(document))
    shorter = min(len(path), len(other))
    if path[:shorter] == other[:shorter]:  # one within the other
        return
    first, second = _at(document, path), _at(document, other)
    _at(document, path[:-1])[path[-1]] = second
    _at(document, other[:-1])[other[-1]] = first


def _add(document: Any, path: Path, chance: random.Random) -> None:
    holder = _at(document, path)
    if isinstance(holder, dict):
        holder[chance.choice(("name", "config", "x", "spec", "metadata", "", "a.b", "resources"))] = copy.deepcopy(
            chance.choice(VALUES)
        )
    elif isinstance(holder, list):
        holder.insert(0, copy.deepcopy(chance.choice(VALUES)))


_CHANGES: list[Callable[[Any, Path, random.Random], None]] = [
    _replace, _replace, _replace, _replace, _delete, _duplicate, _swap, _add
]  # fmt: skip
