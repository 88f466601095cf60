"""Numbers of the status: how they are rounded, and whether one has moved so far that it is written again.

Tests: tests/planning/test_transfer_measurements.py, tests/planning/test_objectives.py
"""

from typing import Final

_LARGEST: Final = 1e15
"""Largest number of the status. The counts of pods are untrusted."""


def figures(number: float | None, unit: float = 1.0) -> float | None:
    """A number with two significant digits."""
    return None if number is None else float(f"{min(_LARGEST, number / unit):.2g}")


def appeared(known: float | None, fresh: float | None) -> bool:
    """Whether a number is there now that was not. One that lacks now, because too little was counted, is no news."""
    return known is None and fresh is not None


def is_far(known: float | None, fresh: float | None, ratio: float) -> bool:
    """Whether a number has appeared, or differs by more than a ratio."""
    if known is None or fresh is None:
        return appeared(known, fresh)
    return max(known, fresh) > ratio * min(known, fresh)
