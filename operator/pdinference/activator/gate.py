"""Where requests wait while P and D have no pods: bounded in number and in time."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_ENDS: Final = "This router stops; ask again."


class TurnedAwayError(Exception):
    """A request may not wait, or not any longer.

    Attributes:
        status: Of the answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Gate:
    """Open while the router has a P and a D pod to send requests to.

    Args:
        limit: How many requests may wait.
        max_wait: For how many seconds.
        clock: Seconds that never jump.

    Attributes:
        held: Requests that wait.
        latched: Whether it was ever open. What has served once is ready for requests, even while they have to wait.
    """

    def __init__(self, *, limit: int, max_wait: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._max_wait = max_wait
        self._clock = clock
        self._open = asyncio.Event()
        self._present = 0
        self._left = clock()
        self._hoped_until = self._left
        self._ending = False
        self.held = 0
        self.latched = False

    @property
    def idle_seconds(self) -> float:
        """Time since there was a request; 0 while there is one, or while one that gave up might still be waiting.

        Nobody can ask before the gate was open once, so the time counts from then at the earliest.

        Clients with less patience than P and D take to start come back. If these were let go meanwhile, such a client
        would never be answered.
        """
        now = self._clock()
        if self._present or (now < self._hoped_until and not self._open.is_set()):
            return 0.0
        return now - self._left

    def set(self, *, opened: bool) -> None:
        """Note whether the router can answer."""
        if opened:
            if not self.latched or self._clock() < self._hoped_until:
                self._left = self._hoped_until = self._clock()  # who gave up has all the time to come back
            self.latched = True
            self._open.set()
        else:
            self._open.clear()

    def end(self) -> None:
        """Let nobody wait any more."""
        self._ending = True
        self._open.set()

    @contextmanager
    def request(self) -> Iterator[float]:
        """Around all of a request; the time until which it may wait comes back."""
        self._present += 1
        try:
            yield self._clock() + self._max_wait
        finally:
            self._present -= 1
            self._left = self._clock()

    async def passed(self, until: float) -> None:
        """Wait until the gate is open.

        Raises:
            TurnedAwayError: Too many wait already, or it takes too long, or the process ends.
        """
        if not self._open.is_set():
            await self._wait(until)

    async def _wait(self, until: float) -> None:
        if self._ending:
            raise TurnedAwayError(503, _ENDS)
        if self.held >= self._limit:
            raise TurnedAwayError(503, f"The model is being started, and {self.held} requests wait already.")
        self.held += 1
        try:
            await asyncio.wait_for(self._open.wait(), max(0.0, until - self._clock()))
        except TimeoutError:
            raise TurnedAwayError(504, "The model did not start in time.") from None
        finally:
            self.held -= 1
            self._hoped_until = max(self._hoped_until, until)
        if self._ending:
            raise TurnedAwayError(503, _ENDS)
