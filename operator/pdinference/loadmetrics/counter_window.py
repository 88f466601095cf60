"""The counters of one process over some minutes, from readings of them.

Tests: tests/loadmetrics/test_streams.py, tests/loadmetrics/test_transfers.py
"""

import math
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from pdinference.planning.router_window import WINDOW_S

SPACING_S: Final = 25.0
"""Least time between two readings that are kept. Routers of a resource with scaleToZero are read every second."""
_LONGEST_S: Final = 90.0
"""Longer gaps restart the window."""
_MOST: Final = 16
"""Maximum number of readings."""


class CounterWindow:
    """The readings of one process, from the newest back to one that is `WINDOW_S` older.

    A count that the process does not report is NaN.

    Args:
        at: Time of the first reading, in seconds.
        counts: Its counts, in an order that stays.

    Attributes:
        since: When the first reading of the process was taken.
        latest_at: When the latest reading was taken.
    """

    def __init__(self, at: float, counts: Iterable[float]) -> None:
        self.since = self.latest_at = at
        self._latest = _packed(counts)
        self._readings = deque([(at, self._latest)], maxlen=_MOST)

    def add(self, at: float, counts: Iterable[float]) -> None:
        """Add a reading. If a counter decreased or vanished, it is of a new process."""
        packed = _packed(counts)
        gap = at - self._readings[-1][0]
        if gap > _LONGEST_S or _has_restarted(_unpacked(self._latest), _unpacked(packed)):
            self._restart(at, packed)
            return
        self.latest_at, self._latest = at, packed
        if gap < SPACING_S:
            return
        self._readings.append((at, packed))
        while len(self._readings) > 2 and self._readings[1][0] <= at - WINDOW_S:
            self._readings.popleft()

    @property
    def seconds(self) -> float:
        """Its length."""
        return self._readings[-1][0] - self._readings[0][0]

    @property
    def growth(self) -> tuple[float, ...]:
        """The counts within it. A counter that appeared within it began at 0."""
        first, last = (_unpacked(self._readings[end][1]) for end in (0, -1))
        return tuple(now - (0.0 if math.isnan(before) else before) for before, now in zip(first, last, strict=True))

    def _restart(self, at: float, packed: bytes) -> None:
        self.since = self.latest_at = at
        self._latest = packed
        self._readings.clear()
        self._readings.append((at, packed))


def _packed(counts: Iterable[float]) -> bytes:
    """The counts in little memory: histograms of 100 buckets take a tenth of an array."""
    return zlib.compress(array("d", counts).tobytes(), 1)


def _unpacked(packed: bytes) -> Sequence[float]:
    return array("d", zlib.decompress(packed))


def _has_restarted(before: Sequence[float], now: Sequence[float]) -> bool:
    return any(not math.isnan(old) and (math.isnan(new) or new < old) for old, new in zip(before, now, strict=True))
