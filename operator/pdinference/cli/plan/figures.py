"""Numbers of a memory plan in words."""

from pdinference.planning.memory import Figure
from pdinference.planning.memory.figures import GIB

__all__ = ["GIB", "count", "gib"]


def gib(figure: Figure) -> str:
    """A size in GiB."""
    return "unknown" if figure.value is None else f"{figure.value / GIB:.2f} GiB"


def count(figure: Figure, unit: str = "") -> str:
    """A whole number with its unit; with two decimals where that is `x`."""
    if figure.value is None:
        return "unknown"
    return f"{figure.value:,.2f}{unit}" if unit == "x" else f"{figure.value:,.0f}{unit}"
