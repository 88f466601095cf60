"""Finds the arrangements worth showing: bounds first, short simulations of those that may do, long ones of the best.

Tests: tests/advise/advice/test_advice.py, tests/advise/advice/test_verdict.py, tests/advise/advice/test_consistency.py
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from pdinference_advise.advice.engines import Built
from pdinference_advise.advice.estimate import Demand, Estimate
from pdinference_advise.advice.layouts import Layout
from pdinference_advise.advice.objectives import RequestObjectives
from pdinference_advise.advice.trial import Keeps, Task, Trial

Simulate = Callable[[Sequence[Task]], list[Trial]]
"""Does the tasks and returns the trials in their order."""
Expect = Callable[[int], None]
"""Takes the most simulations that are still to come, whenever that is known better. For progress."""

_FITS: Final = 1.05
"""Largest estimated load of an arrangement that is simulated."""
_TTFT_ERROR: Final = 1.3
"""An arrangement whose empty engines take this much longer than the objective is left out."""
_LEAST_SCALE: Final = 0.02
_MOST_SCALE: Final = 64.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated. Requests are those of one simulation.

    Attributes:
        short: Requests of the first simulations.
        long: Requests of the last ones.
        probe: Requests of those that look for the largest load.
        at_a_price: Arrangements of a mode and a price that are simulated.
        most: First simulations of a mode.
        finalists: Arrangements of a mode that are shown.
        rounds: Steps of the bisection for the largest load.
        settling: Seconds that a load is at least long, so that long answers come to an end.
    """

    short: int = 1000
    long: int = 5000
    probe: int = 2000
    at_a_price: int = 6
    most: int = 30
    finalists: int = 4
    rounds: int = 6
    settling: float = 60.0

    def seconds(self, requests: int, rate: float, scale: float = 1.0) -> float:
        """Seconds of the part of a load that is simulated.

        Args:
            requests: At least so many.
            rate: Of the load, in requests per second.
            scale: How many times that rate is simulated.
        """
        wanted = requests / rate
        return max(wanted, min(self.settling * scale, 3 * wanted))


@dataclass(frozen=True)
class Candidate:
    """An arrangement, with its price and its bound."""

    built: Built
    estimate: Estimate
    cost: float

    @property
    def layout(self) -> Layout:
        """What it is."""
        return self.built.layout


@dataclass(frozen=True)
class SearchResult:
    """What is known of an arrangement.

    Attributes:
        candidate: The arrangement.
        trial: At the load.
        bears: How many times the load it bears with the objectives kept; 0 if it kept them at no load that was tried.
        broken: At the smallest load that it does not bear; None if it bears all that were tried.
    """

    candidate: Candidate
    trial: Trial
    bears: float
    broken: Trial | None

    @property
    def keeps(self) -> Keeps:
        """Whether it keeps the objectives, with the error bands of the times and of the load that it bears.

        Times show little of a queue that grows soon: an engine that is nearly full has short times up to the load
        that fills it.
        """
        times, certain = self.trial.keeps, 1 + self.candidate.built.errors.rate
        if times is Keeps.YES and self.bears < certain and self.broken is not None:
            return Keeps.PROBABLY
        return Keeps.PERHAPS if times is Keeps.NO and self.bears * certain >= 1 else times


class Search:
    """A search over arrangements.

    Args:
        demand: The mean work of the load.
        objectives: What requests should keep.
        simulate: Does simulations, perhaps in several processes.
        effort: How many.
        expect: Takes how many are still to come.
    """

    def __init__(
        self, demand: Demand, objectives: RequestObjectives, simulate: Simulate, effort: Effort, expect: Expect
    ) -> None:
        self._demand, self._objectives, self._simulate, self._effort = demand, objectives, simulate, effort
        self._expect = expect

    def results(self, candidates: Iterable[Candidate]) -> list[SearchResult]:
        """The best arrangements of both modes, with the largest load that each bears."""
        every = sorted(candidates, key=lambda one: (one.cost, one.estimate.load))
        of_modes = [[one for one in every if one.layout.split is split] for split in (True, False)]
        self._expect(self._most(of_modes))
        found = [self._best(mode) for mode in of_modes]
        peers = [_peers(mode, own, other) for mode, own, other in zip(of_modes, found, reversed(found), strict=True)]
        return self.judge([one for mode in (*found, *peers) for one in mode])

    def judge(self, chosen: Sequence[Candidate]) -> list[SearchResult]:
        """Simulate arrangements at length, and look for the largest load that each bears."""
        self._expect(len(chosen) * self._of_each)
        trials = self._simulate([self._task(one, self._effort.long, 1.0) for one in chosen])
        return self._largest_loads(list(zip(chosen, trials, strict=True)))

    @property
    def _of_each(self) -> int:
        """Simulations of an arrangement that is judged."""
        return 1 + self._effort.rounds

    def _most(self, of_modes: Iterable[list[Candidate]]) -> int:
        """Most simulations of all modes: short ones, and those of the finalists and a peer."""
        of = self._effort
        short = of.most + of.at_a_price - 1 if self._objectives.given else 2 * of.at_a_price
        numbers = [(sum(map(self._may_do, mode)), len(mode)) for mode in of_modes]
        return sum(min(short, may_do) + min(of.finalists + 1, every) * self._of_each for may_do, every in numbers)

    # The first, short simulations

    def _best(self, candidates: list[Candidate]) -> list[Candidate]:
        """The finalists of a mode."""
        may_do = [one for one in candidates if self._may_do(one)]
        if not may_do:
            return sorted(candidates, key=_excess)[:2]
        tried = self._cheapest(may_do) if self._objectives.given else self._largest(may_do)
        tried.sort(key=lambda pair: self._order(*pair))
        return [*_varied(tried, self._effort.finalists), *_ways_left_out(candidates, may_do)]

    def _may_do(self, one: Candidate) -> bool:
        enough = one.estimate.ttft <= _TTFT_ERROR * self._objectives.default.ttft
        return one.estimate.load <= _FITS and enough

    def _cheapest(self, candidates: list[Candidate]) -> list[tuple[Candidate, Trial]]:
        """Simulate from the cheapest on, up to the first price at which one surely keeps the objectives."""
        tried: list[tuple[Candidate, Trial]] = []
        for _, at_price in groupby(candidates, key=lambda one: one.cost):
            chosen = list(at_price)[: self._effort.at_a_price]
            tried += self._tried(chosen)
            if any(_is_certain(one, trial) for one, trial in tried) or len(tried) >= self._effort.most:
                break
        return tried

    def _largest(self, candidates: list[Candidate]) -> list[tuple[Candidate, Trial]]:
        """Without objectives, all GPUs are used."""
        most = max(one.layout.number for one in candidates)
        chosen = [one for one in candidates if one.layout.number == most]
        return self._tried(chosen[: 2 * self._effort.at_a_price])

    def _tried(self, chosen: Sequence[Candidate]) -> list[tuple[Candidate, Trial]]:
        trials = self._simulate([self._task(one, self._effort.short, 1.0) for one in chosen])
        return list(zip(chosen, trials, strict=True))

    def _order(self, one: Candidate, trial: Trial) -> tuple[float, ...]:
        if not self._objectives.given:
            return float(not trial.kept), trial.whole[0]
        if trial.kept:
            return 0.0, one.cost, one.estimate.load
        return 1.0, -trial.attainment, trial.wait, one.cost

    # The largest load

    def _largest_loads(self, pairs: list[tuple[Candidate, Trial]]) -> list[SearchResult]:
        """Bisect the scale of the load, all arrangements in step, so that processes are busy."""
        ranges = [_Range.of(one, trial) for one, trial in pairs]
        for _ in range(self._effort.rounds):
            tasks = [
                self._task(one, self._effort.probe, between.middle)
                for (one, _), between in zip(pairs, ranges, strict=True)
            ]
            trials = self._simulate(tasks)
            ranges = [between.narrowed(trial) for between, trial in zip(ranges, trials, strict=True)]
        return [
            SearchResult(one, trial, between.low, between.broken)
            for (one, trial), between in zip(pairs, ranges, strict=True)
        ]

    def _task(self, one: Candidate, requests: int, scale: float) -> Task:
        seconds = self._effort.seconds(requests, self._demand.rate, scale)
        return Task(one.built.arrangement, seconds, scale, one.built.errors)


@dataclass(frozen=True, slots=True)
class _Range:
    """Between a load that an arrangement bears and one that it does not."""

    low: float
    high: float
    broken: Trial | None

    @classmethod
    def of(cls, one: Candidate, trial: Trial) -> "_Range":
        """From the trial at the load, and the bound."""
        bound = 1 / max(one.estimate.load, 1 / _MOST_SCALE)
        if trial.kept:
            return cls(1.0, max(1.5, min(_MOST_SCALE, 1.3 * bound)), None)
        return cls(0.0, 1.0, trial)

    @property
    def middle(self) -> float:
        """The next load to try."""
        return math.sqrt(max(self.low, _LEAST_SCALE) * self.high)

    def narrowed(self, trial: Trial) -> "_Range":
        """With what was found there."""
        if trial.kept:
            return replace(self, low=trial.scale)
        return replace(self, high=trial.scale, broken=trial)


def _excess(one: Candidate) -> tuple[float, ...]:
    """How far an arrangement is from the load. That of tokens is infinite where no step keeps the objective."""
    of = one.estimate
    return of.load, max(of.prefill, of.transfer), of.ttft, one.cost


def _is_certain(one: Candidate, trial: Trial) -> bool:
    """Whether an arrangement keeps the objectives beyond the error bands, by what is known before its largest load."""
    return trial.keeps is Keeps.YES and one.estimate.load * (1 + one.built.errors.rate) <= 1


def _varied(tried: Sequence[tuple[Candidate, Trial]], most: int) -> list[Candidate]:
    """The first ones, and of each way between P and D at least one."""
    places: dict[object, int] = {}
    for place, (one, _) in enumerate(tried):
        places.setdefault(one.layout.transport, place)
    chosen = set(places.values())
    for place in range(len(tried)):
        if len(chosen) >= most:
            break
        chosen.add(place)
    return [tried[place][0] for place in sorted(chosen)]


def _ways_left_out(candidates: Sequence[Candidate], may_do: Sequence[Candidate]) -> list[Candidate]:
    """Of each way that cannot carry the load in any arrangement, the best one, so that a reader sees why."""
    ways = {one.layout.transport for one in may_do}
    left_out = [one for one in candidates if one.layout.transport not in ways]
    best: dict[object, Candidate] = {}
    for one in sorted(left_out, key=lambda one: (one.estimate.load, one.cost)):
        best.setdefault(one.layout.transport, one)
    return list(best.values())


def _peers(mode: Sequence[Candidate], own: Sequence[Candidate], other: Sequence[Candidate]) -> list[Candidate]:
    """What a mode has at the price of the other one's best, so that a reader can compare on the same GPUs."""
    if not other:
        return []
    at_price = [one for one in mode if one.cost == other[0].cost]
    best = min(at_price, key=lambda one: one.estimate.load, default=None)
    return [best] if best is not None and all(one.cost != best.cost for one in own) else []
