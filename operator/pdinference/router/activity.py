"""Since when there have been no requests. The operator scales P and D to zero by it, and up by waiting requests."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pdinference.router.pods import Pods


class Activity:
    """The requests of clients over time.

    Args:
        pods: The pods, whose clock has to be the same.
        max_wait: Seconds that a request may wait for pods.
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, pods: Pods, max_wait: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pods = pods
        self._max_wait = max_wait
        self._clock = clock
        self._present = 0
        self._left = clock()
        self._expected_until = self._left

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last request; 0 during requests, and until the maximum wait of one that gave up.

        Clients with a timeout below the start-up time of P and D retry. If P and D were scaled to zero between two
        attempts, such a client would never get an answer. For the same reason the time starts again when the pods that
        such a client waits for are ready, and when there are pods for the first time.
        """
        now = self._clock()
        if self._present or (now < self._expected_until and self._pods.complete_since is None):
            return 0.0
        since, first = self._pods.complete_since, self._pods.first_complete
        awaited = since if since is not None and since < self._expected_until else None
        return now - max(self._left, awaited or 0.0, first or 0.0)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request."""
        until = self._clock() + self._max_wait
        self._present += 1
        try:
            yield
        finally:
            self._present -= 1
            self._left = self._clock()
            if self._pods.complete_since is None:
                self._expected_until = max(self._expected_until, until)
