"""The errors of predictions, as a table in Markdown."""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Final

METRICS: Final = ("TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "gap p99", "whole p50")
"""What is predicted and measured, in the order of the columns."""


def error_lines(errors: Mapping[str, Iterable[list[float]]], loads: str = "") -> Iterator[str]:
    """The lines: the median and the largest of the absolute errors in each of `METRICS`, a row for each name.

    Args:
        errors: The errors of each column by the name of a row. A cell without errors stays empty.
        loads: What stands in front of the title.
    """
    yield f"| {loads}median / largest error | {' | '.join(METRICS)} |"
    yield "| --- " * (1 + len(METRICS)) + "|"
    for name, columns in errors.items():
        cells = (f"{median(each):.0%} / {max(each):.0%}" if each else "" for each in columns)
        yield f"| {name} | {' | '.join(cells)} |"
