"""Simulated time: what is to happen, in order.

Tests: tests/advise/simulation/test_fleet.py, tests/advise/simulation/test_pods_that_come_and_go.py
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Clock:
    """Runs calls at their times; those of one time in the order in which they were made.

    Attributes:
        now: Seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Run a call at a time that is not over."""
        heappush(self._calls, (when, next(self._numbers), call))

    def run(self, until: float = math.inf) -> None:
        """Run all calls up to a time, which is the time from then on."""
        calls = self._calls
        while calls:
            entry = heappop(calls)
            when, _, call = entry
            if when > until:
                heappush(calls, entry)
                break
            self.now = when
            call()
        if math.isfinite(until):
            self.now = max(self.now, until)
