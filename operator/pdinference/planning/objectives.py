"""Latency objectives, and how far the requests of some minutes kept them. The counts of pods are untrusted."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pdinference.api.latencies import ABANDONED_BOUNDS, FIRST_TOKEN_BOUNDS, OUTPUT_TOKEN_BOUNDS
from pdinference.api.v1alpha1 import objectives as api

Kind = Literal["ttft", "tpot"]

_CHANCE: Final = 2.0
"""Standard deviations above the allowed number of misses that chance explains."""
_FEWEST: Final = 2
"""Misses from which on an objective can be missed. One slow request shows nothing."""
_STEPS: Final = 20
"""Steps of a share in an outline."""


@dataclass(frozen=True, slots=True)
class StatedObjectives:
    """`spec.objectives`, in seconds.

    Attributes:
        ttft: Time to first token; None without this objective.
        tpot: Time per output token; None without this objective.
        percentile: Share of the requests that should keep them, in percent.
    """

    ttft: float | None
    tpot: float | None
    percentile: float

    @classmethod
    def of(cls, spec: api.Objectives | None) -> "StatedObjectives | None":
        """The objectives of a spec; None without any."""
        if spec is None:
            return None
        return cls(spec.seconds.get("ttft"), spec.seconds.get("tpot"), spec.percentile)

    @property
    def stated(self) -> str:
        """All of them as text, which shows whether numbers belong to them."""
        limits = {"ttft": self.ttft, "tpot": self.tpot}
        named = (f"{name} {1000 * limit:g}ms" for name, limit in limits.items() if limit is not None)
        return f"{', '.join(named)}, p{self.percentile:g}"


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """Streamed answers of some minutes, over all router pods.

    Attributes:
        seconds: Length of the window; 0 after a single reading.
        first_token: Number of answers in each bucket of the time to first token, the last one without an upper bound.
        output_token: The same for the mean time per output token of complete answers.
        abandoned: The same for the time after which clients left before the first token.
        failed: Requests that failed before the first token.
        queue_seconds: Sum of the times that requests waited for a ready pod.
        prefill_seconds: Sum of the times of requests to P.
        decode_seconds: Sum of the times until the first bytes from D.
    """

    seconds: float
    first_token: Sequence[float]
    output_token: Sequence[float]
    abandoned: Sequence[float]
    failed: float = 0.0
    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Attainment:
    """How far requests kept one objective.

    Attributes:
        requests: Number of requests.
        missed: How many of them missed it. Not whole if the objective lies inside a bucket.
        seconds: The measured percentile; None above the largest bound, or without a measurement.
    """

    requests: float
    missed: float
    seconds: float | None

    @property
    def kept(self) -> float:
        """Share of the requests that kept it, 0 to 1."""
        return 1 - self.missed / self.requests if self.requests else 1.0

    def is_missed(self, percentile: float, *, before: bool | None) -> bool | None:
        """Whether the objective is missed; None if it is too early to say.

        It begins with more misses than chance explains if the percentile is just kept, and ends when there are no more
        than allowed.

        Args:
            percentile: Share of the requests that should keep it, in percent.
            before: Whether it was missed before; None if that is unknown.
        """
        allowed = round(self.requests * (100 - percentile) / 100, 6)  # 99.9 is no binary fraction
        if self.missed <= allowed:
            return False
        if before is None:
            return True if self.missed >= _FEWEST else None
        return before or (self.missed >= _FEWEST and self.missed > allowed + _CHANCE * math.sqrt(allowed))


def attainments(objectives: StatedObjectives, counts: StreamCounts) -> dict[Kind, Attainment]:
    """How far the requests kept each objective; without those that have no request.

    A request that failed before its first token misses the time to first token, and one that a client abandoned after
    more than this time.
    """
    found: dict[Kind, Attainment] = {}
    share = objectives.percentile / 100
    if objectives.ttft is not None:
        late = _above(objectives.ttft, FIRST_TOKEN_BOUNDS, counts.first_token)
        lost = counts.failed + _above(objectives.ttft, ABANDONED_BOUNDS, counts.abandoned)
        measured = quantile(share, FIRST_TOKEN_BOUNDS, counts.first_token)
        found["ttft"] = Attainment(sum(counts.first_token) + lost, late + lost, measured)
    if objectives.tpot is not None:
        late = _above(objectives.tpot, OUTPUT_TOKEN_BOUNDS, counts.output_token)
        measured = quantile(share, OUTPUT_TOKEN_BOUNDS, counts.output_token)
        found["tpot"] = Attainment(sum(counts.output_token), late, measured)
    return {kind: one for kind, one in found.items() if one.requests > 0}


def quantile(share: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """A quantile of a histogram, in seconds; None if it is empty, or above the largest bound.

    Args:
        share: Which one, 0 to 1.
        bounds: Upper bounds of the buckets except the last one, which has none.
        counts: Number of values in each bucket. Within a bucket they are taken as evenly distributed.
    """
    rank, below, lower = share * sum(counts), 0.0, 0.0
    if not any(counts):
        return None
    for bound, count in zip(bounds, counts, strict=False):
        if count > 0 and below + count >= rank:
            return lower + (bound - lower) * max(0.0, rank - below) / count
        below, lower = below + count, bound
    return None


def outline(objectives: StatedObjectives, counts: StreamCounts) -> Hashable:
    """Coarse steps of the attainment. As long as they stay, the status does not change because of them."""
    return tuple(
        (
            kind,
            one.is_missed(objectives.percentile, before=False),
            one.is_missed(objectives.percentile, before=True),
            math.ceil(_STEPS * one.kept),
        )
        for kind, one in attainments(objectives, counts).items()
    )


def total(counts: Sequence[StreamCounts]) -> StreamCounts:
    """The counts of several router pods together."""
    return StreamCounts(
        seconds=max(one.seconds for one in counts),
        first_token=_together(one.first_token for one in counts),
        output_token=_together(one.output_token for one in counts),
        abandoned=_together(one.abandoned for one in counts),
        failed=sum(one.failed for one in counts),
        queue_seconds=sum(one.queue_seconds for one in counts),
        prefill_seconds=sum(one.prefill_seconds for one in counts),
        decode_seconds=sum(one.decode_seconds for one in counts),
    )


def _together(histograms: Iterable[Sequence[float]]) -> tuple[float, ...]:
    return tuple(map(sum, zip(*histograms, strict=True)))


def _above(limit: float, bounds: Sequence[float], counts: Sequence[float]) -> float:
    """Number of values above a limit, which is at most the largest bound. Within a bucket they are even."""
    edges = zip((0.0, *bounds), (*bounds, math.inf), counts, strict=True)
    return sum(
        count if lower >= limit else count * (upper - limit) / (upper - lower)
        for lower, upper, count in edges
        if upper > limit
    )
