"""Requests that wait for pods, and how long starts of pods made them wait, for `Retry-After`.

Tests: tests/router/test_waits.py
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_WEIGHT: Final = 0.5
"""Of the last start in what the next one is expected to take: they are alike, and an edit of the spec changes them."""
_LONGEST_SECONDS: Final = 3600


class Waits:
    """The requests that wait, because pods of a role are missing.

    Args:
        forget: Seconds without a request that waits, after which the next one begins a new wait: clients that gave up
            come again within their longest wait.
        clock: Monotonic clock, in seconds.

    Attributes:
        present: How many there are.
    """

    def __init__(self, forget: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.present = 0
        self._forget = forget
        self._clock = clock
        self._began: float | None = None
        self._left = -math.inf
        self._typical: float | None = None

    @contextmanager
    def one(self, *, for_start: bool) -> Iterator[None]:
        """A request waits until the end of the block, which an exception leaves if no pod came.

        Args:
            for_start: Whether pods have to start or to become ready again, as after sleep. Otherwise there are pods,
                which get no request for seconds.
        """
        now = self._clock()
        if not self.present and (not for_start or now - self._left > self._forget):
            self._began = None
        if for_start and self._began is None:
            self._began = now
        self.present += 1
        try:
            yield
        except BaseException:
            self._left = self._clock()
            raise
        else:
            self._ended()
        finally:
            self.present -= 1

    def _ended(self) -> None:
        """The pods are there. The first request that gets one tells how long it took."""
        if self._began is None:
            return
        seconds = self._clock() - self._began
        self._typical = seconds if self._typical is None else self._typical + _WEIGHT * (seconds - self._typical)
        self._began = None

    @property
    def left_seconds(self) -> int | None:
        """Seconds until pods are there, by earlier starts; None if these tell nothing: this one takes longer."""
        if self._typical is None or self._began is None:
            return None
        left = math.ceil(self._typical - (self._clock() - self._began))
        return min(_LONGEST_SECONDS, left) if left > 0 else None
