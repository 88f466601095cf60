"""How busy something was in the recent time: the share in which it was under way, or its work."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

RECENT_S: Final = 10.0
"""Age at which time counts 1/e. It holds many prompts of a busy P pod, and is shorter than most long answers."""


class Busy:
    """Averages over time whether at least one of several activities is under way, with exponential weights.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way = 0
        self._share = 0.0
        self._counted_until = clock()

    @property
    def share(self) -> float:
        """The share, from 0 to 1. It begins with 0."""
        self._count()
        return self._share

    def begin(self) -> None:
        """An activity begins."""
        self._count()
        self._under_way += 1

    def end(self) -> None:
        """An activity ends."""
        self._count()
        self._under_way -= 1

    def add(self, seconds: float) -> None:
        """Count so many seconds of work now, whatever is under way. The share may then be more than 1."""
        self._count()
        self._share += seconds / RECENT_S

    @contextmanager
    def one(self) -> Iterator[None]:
        """An activity for as long as the block."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def _count(self) -> None:
        now = self._clock()
        kept = math.exp((self._counted_until - now) / RECENT_S)
        self._share = self._share * kept + (1 - kept) * bool(self._under_way)
        self._counted_until = now
