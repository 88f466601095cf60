"""Formats numbers of a memory plan.

Tests: tests/cli/test_plan.py, tests/cli/test_plan_comparison.py
"""

from pdinference.memory import Figure
from pdinference.memory.figures import GIB

__all__ = ["GIB", "count", "gib"]


def gib(figure: Figure) -> str:
    """A size in GiB."""
    return "unknown" if figure.value is None else f"{figure.value / GIB:.2f} GiB"


def count(figure: Figure, unit: str = "") -> str:
    """An integer with its unit, or two decimals for the unit `x`."""
    if figure.value is None:
        return "unknown"
    return f"{figure.value:,.2f}{unit}" if unit == "x" else f"{figure.value:,.0f}{unit}"
