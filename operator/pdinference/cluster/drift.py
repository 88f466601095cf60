"""Whether a live object still is what was applied.

The API server fills in defaults and writes values in its own way, so the live object is never equal to the manifest. It
is in order when the manifest is contained in it: each map entry that we set is there, each list that we set has the
same length and contained elements. Only the cache's first look at an object pays for this; from then on a digest tells.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([numkMGTPE]i?)|[eE]([+-]?[0-9]{1,3}))?$")
_DECIMAL_SUFFIX = {None: 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX = {"Ki": 10, "ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EMPTY: tuple[object, ...] = (None, {}, [], "", ())


def contains(live: Any, desired: Any) -> bool:
    """Whether everything that the manifest says holds in the live object."""
    if isinstance(desired, Mapping):
        return _contains_map(live, desired)
    if isinstance(desired, list | tuple):
        return _contains_list(live, desired)
    return _same_scalar(live, desired)


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


def quantity(value: Any) -> Decimal | None:
    """The number that a Kubernetes quantity such as `500m`, `0.5` or `2Gi` stands for; None for anything else."""
    match = _QUANTITY.match(str(value))
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    if suffix in _BINARY_SUFFIX:
        return Decimal(number) * (1 << _BINARY_SUFFIX[suffix])
    scale = int(exponent) if exponent else _DECIMAL_SUFFIX.get(suffix, 0)
    return Decimal(number).scaleb(scale)
