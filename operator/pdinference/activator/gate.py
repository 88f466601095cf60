"""Queues requests while P and D have no pods, with limits on their number and waiting time."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_ENDS: Final = "The router is shutting down. Retry the request."


class TurnedAwayError(Exception):
    """A request cannot wait, or has waited for the maximum time.

    Attributes:
        status: HTTP status of the response.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Gate:
    """A gate that is open while the router has a P pod and a D pod.

    Args:
        limit: Maximum number of waiting requests.
        max_wait: Maximum waiting time, in seconds.
        clock: Monotonic clock, in seconds.

    Attributes:
        held: Number of waiting requests.
        latched: Whether the gate has ever been open. Once it has, the pod is ready, even while requests have to wait.
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
        """Seconds since the last request; 0 during requests, and until the maximum waiting time of a cancelled one.

        The time starts when the gate opens for the first time, because there can be no requests before.

        Clients with a timeout below the start-up time of P and D retry. If P and D were scaled to zero between two
        attempts, such a client would never get an answer.
        """
        now = self._clock()
        if self._present or (now < self._hoped_until and not self._open.is_set()):
            return 0.0
        return now - self._left

    def set(self, *, opened: bool) -> None:
        """Open or close the gate."""
        if opened:
            if not self.latched or self._clock() < self._hoped_until:
                self._left = self._hoped_until = self._clock()  # clients that gave up get the full idle time to retry
            self.latched = True
            self._open.set()
        else:
            self._open.clear()

    def end(self) -> None:
        """Reject all waiting and new requests."""
        self._ending = True
        self._open.set()

    @contextmanager
    def request(self) -> Iterator[float]:
        """Track a request. Yields the time until which it may wait."""
        self._present += 1
        try:
            yield self._clock() + self._max_wait
        finally:
            self._present -= 1
            self._left = self._clock()

    async def passed(self, until: float) -> None:
        """Wait until the gate is open.

        Raises:
            TurnedAwayError: Too many requests wait, the maximum time has passed, or the process is shutting down.
        """
        if not self._open.is_set():
            await self._wait(until)

    async def _wait(self, until: float) -> None:
        if self._ending:
            raise TurnedAwayError(503, _ENDS)
        if self.held >= self._limit:
            raise TurnedAwayError(503, f"The model is starting, and the queue is full ({self.held} requests).")
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
