"""Numbers of the memory plan, with their source.

Tests: tests/memory/test_plan.py, tests/memory/test_ways_out.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

MIB = 2**20
GIB = 2**30


class Source(StrEnum):
    """The source of a number."""

    MEASURED = "measured"  # read from a real device or a user's statement about one
    COMPUTED = "computed"  # follows from the model, the spec and a formula that the note names
    UNKNOWN = "unknown"  # something is missing; the note says what to supply


@dataclass(frozen=True, slots=True)
class Figure:
    """One number.

    Attributes:
        value: The number; None exactly when the source is unknown.
        source: Its source.
        note: How it was determined; if unknown, what to supply.
    """

    value: float | None
    source: Source
    note: str

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    def as_json(self) -> dict[str, object]:
        """The number as `{value, source, note}`."""
        return {"value": self.value, "source": self.source.value, "note": self.note}


def measured(value: float, note: str) -> Figure:
    """A number read from a device."""
    return Figure(value, Source.MEASURED, note)


def computed(value: float, note: str) -> Figure:
    """A number that a formula gave."""
    return Figure(value, Source.COMPUTED, note)


def unknown(note: str) -> Figure:
    """An unknown number, with what to supply."""
    return Figure(None, Source.UNKNOWN, note)


def derived(formula: Callable[..., float], note: str, *inputs: Figure) -> Figure:
    """Combine numbers; unknown, with the reasons of all that are missing, when one is.

    Args:
        formula: Function of the values of the inputs.
        note: How the result was determined.
        inputs: The numbers that it depends on.
    """
    values = [figure.value for figure in inputs]
    if None in values:
        reasons = dict.fromkeys(figure.note for figure in inputs if not figure.known)
        return unknown(" ".join(reasons))
    return computed(formula(*values), note)


def ceil_div(dividend: int, divisor: int) -> int:
    """Integer division, rounded up."""
    return -(-dividend // divisor)
