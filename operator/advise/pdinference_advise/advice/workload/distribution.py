"""Distributions of prompt and answer lengths. `str` gives the text from which `lengths.parse` makes the same one."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from random import Random
from statistics import NormalDist
from typing import Final, Protocol

from pdinference_advise.advice.workload.bounds import MOST_TOKENS

_NORMAL: Final = NormalDist()
_P90: Final = _NORMAL.inv_cdf(0.9)
_WIDEST: Final = 4.0
"""Standard deviations of the logarithm at which a log-normal distribution is cut: one draw in 16,000 is affected."""


class Distribution(Protocol):
    """Lengths in tokens.

    Attributes:
        mean: Mean of all draws, in tokens, without the rounding to whole tokens.
        least: Shortest length.
        most: Longest length.
    """

    @property
    def mean(self) -> float: ...  # noqa: D102 - see above
    @property
    def least(self) -> int: ...  # noqa: D102
    @property
    def most(self) -> int: ...  # noqa: D102

    def draw(self, random: Random) -> int:
        """One length."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each length from `least` to `most` is equally likely."""

    least: int
    most: int

    @property
    def mean(self) -> float:
        """Mean in tokens."""
        return (self.least + self.most) / 2

    def draw(self, random: Random) -> int:
        """One length."""
        return self.least + int(random.random() * (self.most - self.least + 1))

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}..{self.most}"


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A log-normal distribution by its median and 90th percentile, cut at 4 standard deviations of the logarithm."""

    median: int
    p90: int

    @property
    def least(self) -> int:
        """Shortest length."""
        return _tokens(self._at(-_WIDEST))

    @property
    def most(self) -> int:
        """Longest length."""
        return _tokens(self._at(_WIDEST))

    @property
    def mean(self) -> float:
        """Mean in tokens. Draws beyond the limits count as the limits."""
        low, high, sigma = self._at(-_WIDEST), self._at(_WIDEST), self._sigma
        if not sigma:
            return float(self.median)
        z_low, z_high = (math.log(bound / self.median) / sigma for bound in (low, high))
        inside = _NORMAL.cdf(z_high - sigma) - _NORMAL.cdf(z_low - sigma)
        ends = low * _NORMAL.cdf(z_low) + high * (1 - _NORMAL.cdf(z_high))
        return ends + self.median * math.exp(sigma * sigma / 2) * inside

    def draw(self, random: Random) -> int:
        """One length."""
        return _tokens(self._at(max(-_WIDEST, min(_WIDEST, random.gauss()))))

    @property
    def _sigma(self) -> float:
        return math.log(self.p90 / self.median) / _P90

    def _at(self, deviations: float) -> float:
        return min(max(1.0, self.median * math.exp(self._sigma * deviations)), float(MOST_TOKENS))

    def __str__(self) -> str:
        return f"{self.median}~{self.p90}"


@dataclass(frozen=True)
class Quantiles:
    """A distribution by some of its quantiles: the logarithm of the length is linear between two of them.

    Attributes:
        points: Shares of requests, from 0 to 1, and the tokens that this share does not exceed; both in order.
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def extended(cls, points: Sequence[tuple[float, float]]) -> "Quantiles":
        """A distribution whose first and last pieces go on to the shares 0 and 1.

        Args:
            points: At least two quantiles, with different shares.
        """
        (first, second), (last_but_one, last) = points[:2], points[-2:]
        whole = ((0.0, _between(first, second, 0.0)), *points, (1.0, _between(last_but_one, last, 1.0)))
        return cls(tuple(dict(whole).items()))  # ends that are given stay

    @property
    def least(self) -> int:
        """Shortest length."""
        return _tokens(self.points[0][1])

    @property
    def most(self) -> int:
        """Longest length."""
        return _tokens(self.points[-1][1])

    @cached_property
    def mean(self) -> float:
        """Mean in tokens."""
        return sum((share - before) * _log_mean(low, high) for (before, low), (share, high) in pairwise(self.points))

    def draw(self, random: Random) -> int:
        """One length."""
        share = random.random()
        after = bisect_right(self._shares, share)
        return _tokens(_between(self.points[after - 1], self.points[after], share))

    def with_mean(self, mean: float) -> "Quantiles":
        """All lengths multiplied by one factor, so that the mean is another."""
        factor = mean / self.mean
        return Quantiles(tuple((share, _bounded(tokens * factor)) for share, tokens in self.points))

    @cached_property
    def _shares(self) -> list[float]:
        return [share for share, _ in self.points]

    def __str__(self) -> str:
        return ",".join(f"{_percentile(share)}={_tokens(tokens)}" for share, tokens in self.points)


@dataclass(frozen=True)
class Mix:
    """Several distributions.

    Attributes:
        parts: Percent of requests, 100 in all, and the distribution of their lengths.
    """

    parts: tuple[tuple[float, Distribution], ...]

    @property
    def mean(self) -> float:
        """Mean in tokens."""
        return sum(percent * part.mean for percent, part in self.parts) / 100

    @property
    def least(self) -> int:
        """Shortest length."""
        return min(part.least for _, part in self.parts)

    @property
    def most(self) -> int:
        """Longest length."""
        return max(part.most for _, part in self.parts)

    def draw(self, random: Random) -> int:
        """One length."""
        chosen = bisect_right(self._until, 100 * random.random())
        return self.parts[min(chosen, len(self.parts) - 1)][1].draw(random)

    @cached_property
    def _until(self) -> list[float]:
        return list(accumulate(percent for percent, _ in self.parts))

    def __str__(self) -> str:
        return "+".join(f"{percent:g}%:{part}" for percent, part in self.parts)


def _between(before: tuple[float, float], after: tuple[float, float], share: float) -> float:
    """The tokens at a share, on the line through two quantiles."""
    (low, fewest), (high, most) = before, after
    if high == low:
        return most
    growth = math.log(most / fewest) * (share - low) / (high - low)
    return _bounded(fewest * math.exp(min(growth, math.log(MOST_TOKENS))))


def _log_mean(low: float, high: float) -> float:
    """Mean of lengths whose logarithm is uniform between two lengths."""
    ratio = high / low
    return low if ratio - 1 < 1e-9 else low * (ratio - 1) / math.log(ratio)


def _bounded(tokens: float) -> float:
    return min(max(1.0, tokens), float(MOST_TOKENS))


def _tokens(length: float) -> int:
    return max(1, min(round(length), MOST_TOKENS))


def _percentile(share: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(share, f"p{100 * share:.6g}")
