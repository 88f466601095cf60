"""The tables of benchmarks/results/advise-compared.md."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import median
from typing import Final

from benchmarks.advise.against.cases import Case, cases
from benchmarks.advise.against.recording import TOOLS, recorded

OURS: Final = "advise"
_EVERY: Final = (OURS, *TOOLS)
_METRICS: Final = ("TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "whole p50")
_SIX: Final = ("200 / 120 and 6,000 / 500", "300 / 700", "12,000 / 80", "2,500 / 400", "700 / 40", "16,000 / 300")
_CLOSE: Final = 0.05
"""Modes whose whole requests differ by less are equally good: the same load was measured twice with other winners."""

Times = tuple[float | None, ...]
"""Those of `_METRICS` in ms."""


@dataclass(frozen=True)
class Row:
    """A measured load with all predictions of it.

    Attributes:
        case: The load.
    """

    case: Case

    @cached_property
    def measured(self) -> Times:
        """What was measured."""
        return _without_gap(self.case.measured)

    @cached_property
    def _ours(self) -> Times:
        return _without_gap(self.case.ours())

    def of(self, tool: str) -> Times | None:
        """The prediction of a tool; None where it has none."""
        if tool == OURS:
            return self._ours
        found = recorded()[tool][self.case.key]
        if "problem" in found:
            return None
        ttft, tpot = found["ttft"], found["tpot"]
        return ttft["p50"], ttft.get("p99"), tpot["p50"], tpot.get("p99"), found["whole"]

    @property
    def way(self) -> str:
        """Unsplit, or P and D."""
        return "P and D" if self.case.parameter else "unsplit"

    def error(self, tool: str, metric: int) -> float | None:
        """The relative error of a prediction."""
        found, real = self.of(tool), self.measured[metric]
        mine = None if found is None else found[metric]
        return None if mine is None or real is None else mine / real - 1


@cache
def rows() -> tuple[Row, ...]:
    """All measured loads."""
    return tuple(Row(case) for case in cases())


def _without_gap(six: tuple[float | None, ...]) -> Times:
    return (*six[:4], six[5])


def lines() -> Iterator[str]:
    """All tables."""
    for table in (errors(), six_loads(), six_errors(), choices(), summary(), every(), left_out()):
        yield from table
        yield ""


def errors() -> Iterator[str]:
    """Errors on the loads that all three express, by who was measured and how."""
    yield f"| loads | tool | number | {' | '.join(_METRICS)} |"
    yield "| --- | --- | ---: " + "| --- " * len(_METRICS) + "|"
    common = [row for row in rows() if all(row.of(tool) for tool in TOOLS)]
    borne = [row for row in common if not row.case.saturated]
    titles = [("all that were borne", borne), ("more than was borne", [row for row in common if row.case.saturated])]
    groups = dict.fromkeys((row.case.group, row.way) for row in borne)
    titles += [(", ".join(group), [row for row in borne if (row.case.group, row.way) == group]) for group in groups]
    for title, some in titles:
        for tool in _EVERY:
            yield f"| {title} | {tool} | {len(some)} | {' | '.join(_errors(some, tool))} |"


def _errors(some: Iterable[Row], tool: str) -> Iterator[str]:
    """Median and largest absolute error of each metric."""
    kept = list(some)
    for metric in range(len(_METRICS)):
        found = [abs(error) for row in kept if (error := row.error(tool, metric)) is not None]
        yield f"{median(found):.0%} / {max(found):.0%}" if found else ""


def _six() -> list[Row]:
    """The loads of benchmarks/results/adaptive.md, compiled: the last rows of them."""
    last = [row for row in rows() if row.case.title in _SIX and row.case.kv_tokens == _KV_OF_SIX]
    return sorted(last, key=lambda row: (_SIX.index(row.case.title), row.way))


_KV_OF_SIX: Final = 106_496


def six_loads() -> Iterator[str]:
    """The loads of benchmarks/results/adaptive.md."""
    yield "| load | req/s | | measured: TTFT, TPOT, whole | " + " | ".join(_EVERY) + " |"
    yield "| --- | ---: | --- | --- " + "| --- " * len(_EVERY) + "|"
    for row in _six():
        cells = (_three(row.of(tool), row.measured) for tool in _EVERY)
        yield f"| {row.case.title} | {row.case.rate:g} | {row.way} | {_plain(row.measured)} | {' | '.join(cells)} |"


def six_errors() -> Iterator[str]:
    """The errors of these."""
    yield f"| six loads of adaptive.md, unsplit and split | number | {' | '.join(_METRICS)} |"
    yield "| --- | ---: " + "| --- " * len(_METRICS) + "|"
    for tool in _EVERY:
        some = [row for row in _six() if row.of(tool)]
        yield f"| {tool} | {len(some)} | {' | '.join(_errors(some, tool))} |"


def _plain(times: Times) -> str:
    return ", ".join("" if times[at] is None else f"{times[at]:,.4g}" for at in (0, 2, 4))


def _three(found: Times | None, real: Times) -> str:
    """Errors of the first token, of a token and of a whole request, at the median."""
    if found is None:
        return "cannot say"
    cells = []
    for at in (0, 2, 4):
        mine, measured = found[at], real[at]
        cells.append("-" if mine is None or measured is None else f"{mine / measured - 1:+.0%}")
    return ", ".join(cells)


def _pairs() -> Iterator[tuple[Row, Row]]:
    """Unsplit and split rows of a load of one series, in its own order."""
    measured = [row for row in rows() if row.case.pair is not None and _whole(row.measured, row.case)]
    for split in measured:
        for together in measured:
            if split.case.parameter and not together.case.parameter and split.case.pair == together.case.pair:
                yield together, split


def _whole(times: Times | None, case: Case) -> float | None:
    """A whole request; from the first token and the others where it was not published."""
    if times is None:
        return None
    if times[4] is not None:
        return times[4]
    if times[0] is None or times[2] is None:
        return None
    return times[0] + (case.lengths[0][1] - 1) * times[2]


def _chosen(together: float | None, split: float | None) -> str:
    if together is None or split is None:
        return "cannot say"
    if abs(together / split - 1) < _CLOSE:
        return "either"
    return "split" if split < together else "unsplit"


def _choice(tool: str, together: Row, split: Row) -> tuple[str, str]:
    """What a tool chooses, and whether that was right."""
    best = _chosen(_whole(together.measured, together.case), _whole(split.measured, split.case))
    found = _chosen(_whole(together.of(tool), together.case), _whole(split.of(tool), split.case))
    if found == "cannot say":
        return found, found
    if best in {found, "either"}:
        return found, "right"
    return found, "undecided" if found == "either" else "wrong"


def choices() -> Iterator[str]:
    """What each would choose, by the median of whole requests."""
    yield f"| load | req/s | GPUs | whole: unsplit / split, measured | better | {' | '.join(_EVERY)} |"
    yield "| --- | ---: | --- | --- | --- " + "| --- " * len(_EVERY) + "|"
    for together, split in _pairs():
        real = _whole(together.measured, together.case), _whole(split.measured, split.case)
        cells = []
        for tool in _EVERY:
            mine = _whole(together.of(tool), together.case), _whole(split.of(tool), split.case)
            choice, judged = _choice(tool, together, split)
            numbers = "" if None in mine else f" ({mine[0]:,.0f} / {mine[1]:,.0f})"
            cells.append(f"{choice}{numbers}{', ' + judged if judged in {'wrong', 'undecided'} else ''}")
        case = split.case
        yield (
            f"| {case.title}, {_way(case)} | {case.rate:g} | {case.group} | {real[0]:,.0f} / {real[1]:,.0f} | "
            f"{_chosen(*real)} | {' | '.join(cells)} |"
        )


def _way(case: Case) -> str:
    return (
        "TCP"
        if case.transfer == 2.5
        else f"{case.parameter[0]} P"
        if case.parameter and case.transfer != 95
        else "NVLink"
    )


def summary() -> Iterator[str]:
    """How often each was right."""
    yield "| | right | undecided | wrong | cannot say |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for tool in _EVERY:
        count = Counter(_choice(tool, together, split)[1] for together, split in _pairs())
        yield f"| {tool} | {' | '.join(str(count[each]) for each in ('right', 'undecided', 'wrong', 'cannot say'))} |"


def every() -> Iterator[str]:
    """Each load, with the errors of the first token, of a token and of a whole request at the median."""
    yield f"| measured on | load | req/s | | measured: TTFT, TPOT, whole | {' | '.join(_EVERY)} |"
    yield "| --- | --- | ---: | --- | --- " + "| --- " * len(_EVERY) + "|"
    for row in rows():
        cells = (_three(row.of(tool), row.measured) for tool in _EVERY)
        way = f"{row.way}, {_way(row.case)}" if row.case.parameter else row.way
        yield (
            f"| {row.case.group} | {row.case.title} | {row.case.rate:g} | {way} | {_plain(row.measured)} | "
            f"{' | '.join(cells)} |"
        )


def left_out() -> Iterator[str]:
    """What a tool has no prediction of, and what it says."""
    yield "| tool | loads without a prediction | what it says |"
    yield "| --- | ---: | --- |"
    for tool in TOOLS:
        said = Counter(
            found["problem"] for row in rows() if "problem" in (found := recorded()[tool][row.case.key])
        )  # fmt: skip
        for problem, number in said.most_common():
            yield f"| {tool} | {number} | {problem.replace('|', '/')} |"
