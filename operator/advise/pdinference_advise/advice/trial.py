"""One simulation of an arrangement, and how its requests did by the objectives. Runs in processes of its own.

Tests: tests/advise/advice/test_error_band.py, tests/advise/advice/test_few_requests.py
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pdinference_advise.advice.errors import Errors
from pdinference_advise.advice.objectives import RequestObjectives
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.simulation.arrangement import Arrangement
from pdinference_advise.simulation.request import Request
from pdinference_advise.simulation.run import Run, Use, simulate

_WARM_UP: Final = 0.2
_GROWTH: Final = 1.5
"""A queue grows where requests of the last third take this much longer than those of the first one."""
_FEW: Final = 30
"""Requests of a third below which its mean says nothing."""
_FEW_COUNTED: Final = 100
"""Requests after the warm-up below which those before it count, too: of a short trace, or one that begins with all."""
_ENDING_S: Final = 600.0
"""Seconds after such a load in which its requests may end."""
_LOST: Final = 0.01
"""Share of requests without an end from which an arrangement does not carry the load."""


class Keeps(IntEnum):
    """Whether the objectives are kept, with the error band of the prediction."""

    NO = 0  # not even if everything is better by the band
    PERHAPS = 1  # only if it is better than predicted
    PROBABLY = 2  # as predicted
    YES = 3  # also if everything is worse by the band


@dataclass(frozen=True, slots=True)
class Task:
    """A simulation to do.

    Attributes:
        arrangement: What serves.
        seconds: Length of the busiest part of the load that is taken, before it is made faster.
        scale: How many times the rate.
        errors: Of its predictions.
    """

    arrangement: Arrangement
    seconds: float
    scale: float
    errors: Errors


@dataclass(frozen=True, slots=True)
class Trial:
    """What a simulation gave. Times are seconds.

    Attributes:
        scale: How many times the rate of the load.
        ttft: At the median and the percentile of the objectives.
        tpot: Times per output token, at the same.
        gap: Gaps between tokens at the percentile 99.
        whole: Whole requests at the percentiles 50 and 99.
        attainment: Share of the requests that keep both objectives; all that end without objectives.
        ttft_missed: Largest share of a class that misses the objective for the first token.
        tpot_missed: The same for a token.
        keeps: Whether the objectives are kept; without any, whether no queue grows.
        use: How much of the capacity was used.
        tokens: Tokens of answers a second.
    """

    scale: float
    ttft: tuple[float, float]
    tpot: tuple[float, float]
    gap: float
    whole: tuple[float, float]
    attainment: float
    ttft_missed: float
    tpot_missed: float
    keeps: Keeps
    use: Use
    tokens: float

    @property
    def kept(self) -> bool:
        """Whether the objectives are kept as predicted."""
        return self.keeps >= Keeps.PROBABLY

    @property
    def wait(self) -> float:
        """Median time of a whole request; infinite where none came to its end."""
        return math.inf if math.isnan(self.whole[0]) else self.whole[0]


def run_trial(task: Task, load: Trace, objectives: RequestObjectives) -> Trial:
    """Simulate the busiest part of a load."""
    part = load.busiest(task.seconds).faster(task.scale)
    warm_up = _WARM_UP * part.seconds
    few = sum(arrival.at >= warm_up for arrival in part.arrivals) < _FEW_COUNTED
    run = simulate(
        task.arrangement,
        part.arrivals,
        warm_up=0.0 if few else warm_up,
        until=part.seconds,
        ending=_ENDING_S if few else 0.0,
    )
    judged = [_judged(request, objectives) for request in run.requests]
    grows = not few and _grows(run)
    out = run.outcome
    return Trial(
        scale=task.scale,
        ttft=(out.ttft.at(50), out.ttft.at(objectives.percentile)),
        tpot=(out.tpot.at(50), out.tpot.at(objectives.percentile)),
        gap=out.gaps.quantile(0.99),
        whole=(out.whole.at(50), out.whole.at(99)),
        attainment=sum(max(one.ttft, one.tpot) <= 1 for one in judged) / max(1, len(judged)),
        ttft_missed=_missed(judged, lambda one: one.ttft, 1.0),
        tpot_missed=_missed(judged, lambda one: one.tpot, 1.0),
        keeps=_keeps(judged, objectives, task.errors, grows=grows),
        use=run.use,
        tokens=sum(arrival.answer for arrival in part.arrivals) / part.seconds,
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """A request: its times as multiples of its objectives."""

    kind: str
    ttft: float
    tpot: float


def _judged(request: Request, objectives: RequestObjectives) -> _Judged:
    arrival = request.arrival
    if not request.done_at:
        return _Judged(arrival.kind, math.inf, math.inf)
    objective = objectives.of(arrival.kind)
    gaps = arrival.answer - 1
    tpot = (request.done_at - request.first_at) / gaps if gaps else 0.0
    return _Judged(arrival.kind, (request.first_at - arrival.at) / objective.ttft, tpot / objective.tpot)


def _keeps(judged: Sequence[_Judged], objectives: RequestObjectives, errors: Errors, *, grows: bool) -> Keeps:
    if not judged:
        return Keeps.NO
    if not objectives.given:
        lost = sum(math.isinf(one.ttft) for one in judged) / len(judged)
        return Keeps.NO if grows or lost > _LOST else Keeps.YES
    allowed = 1 - objectives.percentile / 100
    ttft, tpot = errors.ttft(objectives.percentile), errors.tpot(objectives.percentile)

    def kept(ttft_limit: float, tpot_limit: float) -> bool:
        return (
            _missed(judged, lambda one: one.ttft, ttft_limit) <= allowed
            and _missed(judged, lambda one: one.tpot, tpot_limit) <= allowed
        )

    # An error is a share of the measured time, so a measured time is a predicted one / (1 - error) at most.
    if kept(1 - ttft, 1 - tpot):
        return Keeps.YES
    if kept(1.0, 1.0):
        return Keeps.PROBABLY
    return Keeps.PERHAPS if kept(1 + ttft, 1 + tpot) else Keeps.NO


def _missed(judged: Iterable[_Judged], value: Callable[[_Judged], float], limit: float) -> float:
    """The largest share of a class that is above a limit."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in judged:
        count = counts[one.kind]
        count[0] += 1
        count[1] += value(one) > limit
    return max((missed / number for number, missed in counts.values()), default=0.0)


def _grows(run: Run) -> bool:
    """Whether requests that come later wait longer."""
    requests = run.requests
    third = len(requests) // 3
    if third < _FEW:
        return False
    first, last = _mean_wait(requests[:third]), _mean_wait(requests[-third:])
    return last > _GROWTH * first


def _mean_wait(requests: Sequence[Request]) -> float:
    """Mean seconds of a whole request; infinite where one has no end."""
    if any(not request.done_at for request in requests):
        return math.inf
    return sum(request.done_at - request.arrival.at for request in requests) / len(requests)
