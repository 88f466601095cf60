"""The gaps between tokens, as a histogram.

Tests: tests/advise/simulation/test_engine.py
"""

import math
from collections import defaultdict
from typing import Final

_WIDTH: Final = math.log(1.02)


class Gaps:
    """Counts gaps by length, in classes of 2 %."""

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)

    def add(self, seconds: float, number: int) -> None:
        """Count gaps of one length."""
        self._counts[round(math.log(seconds) / _WIDTH)] += number

    def clear(self) -> None:
        """Forget all, as after a warm-up."""
        self._counts.clear()

    def quantile(self, share: float) -> float:
        """The length that this share of the gaps does not exceed, in seconds; not a number without gaps."""
        left = share * sum(self._counts.values())
        for key, number in sorted(self._counts.items()):
            left -= number
            if left <= 0:
                return math.exp(key * _WIDTH)
        return math.nan
