"""How busy something was in the recent time, by its work."""

import math
import time
from collections.abc import Callable
from typing import Final

RECENT_S: Final = 10.0
"""Age at which time counts 1/e. It holds many prompts of a busy pod, and is shorter than most long answers."""


class Busy:
    """Averages work over time, with exponential weights.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._share = 0.0
        self._counted_until = clock()

    @property
    def share(self) -> float:
        """Seconds of work in each second. It begins with 0, and is more than 1 if there is more work than time."""
        self._count()
        return self._share

    def add(self, seconds: float) -> None:
        """Count so many seconds of work now."""
        self._count()
        self._share += seconds / RECENT_S

    def _count(self) -> None:
        now = self._clock()
        self._share *= math.exp((self._counted_until - now) / RECENT_S)
        self._counted_until = now
