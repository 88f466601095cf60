"""Parser for Kubernetes quantities.

The parser of the official client would import the whole client into the pure layers and `pdinference render`.

Tests: tests/cluster/test_drift.py
"""

import re
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(
    r"^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?$", re.ASCII
)
_LONGEST = 64
_DECIMAL_SUFFIX = {None: 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def quantity(value: Any) -> Decimal | None:
    """The value of a quantity such as `500m`, `0.5` or `2Gi`; None if it is not a quantity."""
    text = str(value) if isinstance(value, str | int | float) else ""
    match = _QUANTITY.match(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    if suffix in _BINARY_SUFFIX:
        return Decimal(number) * (1 << _BINARY_SUFFIX[suffix])
    scale = int(exponent) if exponent else _DECIMAL_SUFFIX.get(suffix, 0)
    return Decimal(number).scaleb(scale)
