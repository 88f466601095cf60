"""The work queue of resources to reconcile, each by one worker at a time.

Every trigger (a watch event, a resync, a timer, a failure) adds the key of a resource. A key that is added while it is
processed is processed again afterwards; a key that is queued already is not added twice. So a burst of events costs one
reconcile, and no event is lost.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pdinference.controller.metrics import Metrics

KeyT = TypeVar("KeyT", bound=Hashable)

_BACKOFF_FIRST_S = 0.5
_BACKOFF_LIMIT_S = 300.0


@dataclass(order=True)
class _Timer(Generic[KeyT]):
    due: float
    key: KeyT = field(compare=False)


class WorkQueue(Generic[KeyT]):
    """Keys to process now or later.

    Args:
        clock: Monotonic seconds; the event loop's by default.
        jitter: Factor for each delay, so that keys that failed at the same time are not retried at the same time.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        clock: Callable[[], float] | None = None,
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),  # noqa: S311 - no secret
    ) -> None:
        self._metrics = metrics
        self._clock = clock or asyncio.get_running_loop().time
        self._jitter = jitter
        self._ready: deque[KeyT] = deque()
        self._since: dict[KeyT, float] = {}  # keys in _ready, and since when
        self._running: set[KeyT] = set()
        self._dirty: set[KeyT] = set()  # added while running
        self._timers: list[_Timer[KeyT]] = []
        self._due: dict[KeyT, float] = {}  # the earliest timer of each key; later ones are void
        self._failures: dict[KeyT, int] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: KeyT) -> None:
        """Process a key as soon as a worker is free."""
        self._due.pop(key, None)
        if key in self._running:
            self._dirty.add(key)
        elif key not in self._since:
            self._since[key] = self._clock()
            self._ready.append(key)
            self._metrics.queue_adds.inc()
            self._metrics.queue_depth.set(len(self._ready))
            self._wake.set()

    def add_after(self, key: KeyT, delay: float) -> None:
        """Process a key after `delay` seconds, unless it is processed before."""
        due = self._clock() + delay
        if key in self._since or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._timers, _Timer(due, key))
        self._wake.set()

    def retry(self, key: KeyT, retry_after: float = 0.0) -> float:
        """Process a key again after a back-off that doubles with each failure. Returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(_BACKOFF_LIMIT_S, _BACKOFF_FIRST_S * 2.0 ** min(failures, 16)) * self._jitter()
        delay = max(delay, retry_after)
        self._metrics.queue_retries.inc()
        self.add_after(key, delay)
        return delay

    def forget(self, key: KeyT) -> None:
        """Reset the back-off of a key, after a success."""
        self._failures.pop(key, None)

    def close(self) -> None:
        """Return no more keys; work in progress is not interrupted."""
        self._closed = True
        self._wake.set()

    async def get(self) -> KeyT | None:
        """The next key, which counts as in progress until `done`; None when the queue is closed."""
        while not self._closed:
            wait = self._promote()
            if self._ready:
                return self._take()
            self._wake.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                continue
        return None

    def done(self, key: KeyT) -> None:
        """Mark a key as processed."""
        self._running.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def _take(self) -> KeyT:
        key = self._ready.popleft()
        self._metrics.queue_seconds.observe(self._clock() - self._since.pop(key))
        self._metrics.queue_depth.set(len(self._ready))
        self._running.add(key)
        if self._ready:
            self._wake.set()  # another worker may be waiting
        return key

    def _promote(self) -> float | None:
        """Move due keys to the ready ones. Returns seconds until the next timer; None without one."""
        now = self._clock()
        while self._timers:
            timer = self._timers[0]
            if self._due.get(timer.key) != timer.due:
                heapq.heappop(self._timers)  # superseded by an earlier timer or by `add`
            elif timer.due <= now:
                heapq.heappop(self._timers)
                self.add(timer.key)
            else:
                return timer.due - now
        return None
