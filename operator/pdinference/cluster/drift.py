"""Comparison of live objects with their manifests.

The API server adds defaults and normalizes values, so a live object never equals its manifest. It is in order if it
contains the manifest: it has each map entry, and each list has the same length and contains each element. The cache
compares an object in this way once, and by its digest from then on.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api.quantities import quantity

_EMPTY: tuple[object, ...] = (None, {}, [], "", ())


def contains(live: Any, desired: Any) -> bool:
    """Whether the live object contains the manifest."""
    if isinstance(desired, Mapping):
        return _contains_map(live, desired)
    if isinstance(desired, list | tuple):
        return _contains_list(live, desired)
    return _same_scalar(live, desired)


def difference(live: Any, desired: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first difference between a live object and its manifest; None if the object contains the manifest.

    Args:
        live: The live object, or a part of it.
        desired: The same part of the manifest.
        path: Path of this part, such as `spec.template`.

    Returns:
        The path, the live value and the value of the manifest.
    """
    if contains(live, desired):
        return None
    for name, part, wanted in _parts(live, desired):
        if (found := difference(part, wanted, f"{path}{name}" if path else name.removeprefix("."))) is not None:
            return found
    return path, live, desired


def _parts(live: Any, desired: Any) -> Iterator[tuple[str, Any, Any]]:
    """Pairs of members of two objects, or of items of two lists of the same length, with their paths."""
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        yield from ((f".{key}", live.get(key), value) for key, value in desired.items())
    elif isinstance(desired, list | tuple) and isinstance(live, list) and len(live) == len(desired):
        yield from ((f"[{index}]", part, value) for index, (part, value) in enumerate(zip(live, desired, strict=True)))


def _contains_map(live: Any, desired: Mapping[str, Any]) -> bool:
    if not isinstance(live, Mapping):
        return live is None and all(value in _EMPTY for value in desired.values())
    return all(contains(live.get(key), value) for key, value in desired.items())


def _contains_list(live: Any, desired: list[Any] | tuple[Any, ...]) -> bool:
    if not isinstance(live, list):
        return live is None and not desired
    return len(live) == len(desired) and all(map(contains, live, desired))


def _same_scalar(live: Any, desired: Any) -> bool:
    if live == desired and isinstance(live, bool) == isinstance(desired, bool):
        return True
    if live is None or desired is None:
        return _is_empty(live) and _is_empty(desired)
    if isinstance(live, bool) or isinstance(desired, bool):
        return False
    left, right = quantity(live), quantity(desired)
    return left is not None and left == right


def _is_empty(value: Any) -> bool:
    """Whether a value counts as absent. The server drops empty values, and `false` and 0 where they are the default."""
    return value in _EMPTY or value is False or value == 0
