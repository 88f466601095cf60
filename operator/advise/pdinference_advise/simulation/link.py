"""A link that transfers use one after the other.

Tests: tests/advise/simulation/test_fleet.py
"""

from collections.abc import Callable

from pdinference.performance.links import Way
from pdinference_advise.simulation.clock import Clock


class SimulatedLink:
    """First come, first served, as NIXL's transfers over one connection were measured.

    With 8,000 tokens at 3 and 4.5 requests a second over TCP, which is more than it carries, half of the requests of 33
    seconds had their first token after 4.3 and 17.4 s (docs/p-d-or-not.md). In order it would be 4.2 and 16.4 s, if all
    shared the link equally 8.5 and 34 s.

    Attributes:
        busy: Seconds in which there was a transfer.
        moved: Bytes that began to move.
    """

    def __init__(self, clock: Clock, way: Way) -> None:
        self._clock = clock
        self._way = way
        self._free_at = 0.0
        self.busy = 0.0
        self.moved = 0.0

    def move(self, size: float, then: Callable[[], None]) -> None:
        """Move bytes, and make a call when they are there."""
        seconds = size / self._way.rate
        self._free_at = max(self._clock.now, self._free_at) + seconds
        self.moved += size
        self.busy += seconds
        self._clock.at(self._free_at + self._way.latency, then)
