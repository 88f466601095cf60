"""Whether a live object still is what was applied.

The API server fills in defaults and writes values in its own way, so the live object is never equal to the manifest. It
is in order when the manifest is contained in it: each map entry that we set is there, each list that we set has the
same length and contained elements. Only the cache's first look at an object pays for this; from then on a digest tells.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pdinference.api.quantities import quantity

_EMPTY: tuple[object, ...] = (None, {}, [], "", ())


def contains(live: Any, desired: Any) -> bool:
    """Whether everything that the manifest says holds in the live object."""
    if isinstance(desired, Mapping):
        return _contains_map(live, desired)
    if isinstance(desired, list | tuple):
        return _contains_list(live, desired)
    return _same_scalar(live, desired)


def difference(live: Any, desired: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first place where the live object lacks what the manifest says; None when it contains all of it.

    Args:
        live: The live object, or a part of it.
        desired: The same part of the manifest.
        path: Of this part, such as `spec.template`.

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
    """The members of two objects, or the items of two lists of one length, that can be compared."""
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
    """Absent: the server drops empty values, and leaves out `false` and 0 where they are the default."""
    return value in _EMPTY or value is False or value == 0
