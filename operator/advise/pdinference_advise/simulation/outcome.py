"""What a simulated load gave.

Tests: tests/advise/simulation/test_fleet.py
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdinference_advise.simulation.gaps import Gaps
from pdinference_advise.simulation.request import Request


@dataclass(frozen=True, slots=True)
class Times:
    """Percentiles of the requests that have ended, in seconds."""

    of: tuple[float, ...]

    def at(self, percentile: float) -> float:
        """The value at a percentile, of 0 to 100; not a number without values."""
        if not self.of:
            return math.nan
        place = (len(self.of) - 1) * percentile / 100
        low = math.floor(place)
        high = min(low + 1, len(self.of) - 1)
        return self.of[low] + (self.of[high] - self.of[low]) * (place - low)


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """What a load gave.

    Attributes:
        ttft: Times to the first token.
        tpot: Times per output token after the first, of requests with at least two.
        whole: Times of whole requests.
        gaps: Gaps between tokens.
    """

    ttft: Times
    tpot: Times
    whole: Times
    gaps: Gaps


def outcome_of(requests: Sequence[Request], gaps: Gaps) -> SimulatedOutcome:
    """Judge requests."""
    ended = [request for request in requests if request.done_at]

    return SimulatedOutcome(
        ttft=_times(one.first_at - one.arrival.at for one in ended),
        tpot=_times((one.done_at - one.first_at) / (one.arrival.answer - 1) for one in ended if one.arrival.answer > 1),
        whole=_times(one.done_at - one.arrival.at for one in ended),
        gaps=gaps,
    )


def _times(seconds: Iterable[float]) -> Times:
    return Times(tuple(sorted(seconds)))
