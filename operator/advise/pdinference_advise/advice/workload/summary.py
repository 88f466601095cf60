"""What a workload is like, in a few numbers, so that its author sees whether it was understood.

Tests: tests/advise/advice/workload/test_trace.py
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.simulation.arrivals import PREFIX_BLOCK, Arrival

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean and percentiles of prompts or answers, in tokens."""

    mean: float
    p50: int
    p90: int
    p99: int
    most: int

    def __str__(self) -> str:
        if self.mean == self.most:
            return f"{self.most:,}"
        return f"mean {self.mean:,.0f}, p50 {self.p50:,}, p90 {self.p90:,}, p99 {self.p99:,}, longest {self.most:,}"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a workload is like.

    Attributes:
        requests: Number of requests.
        seconds: Its length.
        rate: Requests per second.
        peak_rate: Requests per second in the busiest minute; the mean if it is not longer than a minute.
        prompt: Prompt lengths.
        answer: Answer lengths.
        repeated: Share of the prompt tokens that an earlier request began with, too: 0 to 1. A prefix cache without a
            limit would have them, in whole blocks of `PREFIX_BLOCK` tokens.
        kinds: Number of requests of each class, without those that have none.
    """

    requests: int
    seconds: float
    rate: float
    peak_rate: float
    prompt: Lengths
    answer: Lengths
    repeated: float
    kinds: dict[str, int]

    def lines(self) -> Iterator[str]:
        """The same as text."""
        requests = "1 request" if self.requests == 1 else f"{self.requests:,} requests"
        yield f"{requests} in {_duration(self.seconds)}: {self.rate:.3g}/s, peak {self.peak_rate:.3g}/s"
        yield f"Prompt tokens: {self.prompt}"
        yield f"Answer tokens: {self.answer}"
        if self.repeated:
            yield f"{self.repeated:.0%} of the prompt tokens are the beginning of an earlier prompt, too"
        if self.kinds:
            yield "Classes: " + ", ".join(f"{kind} {number:,}" for kind, number in sorted(self.kinds.items()))


def summarise(trace: Trace) -> Summary:
    """What a workload is like."""
    arrivals = trace.arrivals
    return Summary(
        requests=len(arrivals),
        seconds=trace.seconds,
        rate=trace.rate,
        peak_rate=_peak_rate(trace),
        prompt=_lengths([arrival.prompt for arrival in arrivals]),
        answer=_lengths([arrival.answer for arrival in arrivals]),
        repeated=_repeated(arrivals) / sum(arrival.prompt for arrival in arrivals),
        kinds=dict(Counter(arrival.kind for arrival in arrivals if arrival.kind)),
    )


def _peak_rate(trace: Trace) -> float:
    if trace.seconds <= _MINUTE_S:
        return trace.rate
    minutes = Counter(int(arrival.at / _MINUTE_S) for arrival in trace.arrivals)
    return max(minutes.values()) / _MINUTE_S


def _lengths(tokens: list[int]) -> Lengths:
    tokens.sort()
    p50, p90, p99 = (_percentile(tokens, share) for share in (0.5, 0.9, 0.99))
    return Lengths(sum(tokens) / len(tokens), p50, p90, p99, tokens[-1])


def _percentile(ordered: Sequence[int], share: float) -> int:
    return ordered[math.ceil(share * len(ordered)) - 1]


def _repeated(arrivals: Iterable[Arrival]) -> int:
    """Prompt tokens in blocks that an earlier request had at the same place, after the same blocks."""
    seen: set[int] = set()
    blocks = 0
    for arrival in arrivals:
        chain = 0
        for block in arrival.prefix:
            chain = hash((chain, block))
            blocks += chain in seen
            seen.add(chain)
    return blocks * PREFIX_BLOCK


def _duration(seconds: float) -> str:
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h" if seconds < 2 * _DAY_S else f"{seconds / _DAY_S:.1f} days"
