"""Recent readings of one pod, and the rates in them.

Tests: tests/loadmetrics/test_signals.py, tests/loadmetrics/test_exposition.py, tests/loadmetrics/test_scrape.py
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pdinference.loadmetrics.scraping.exposition import Histogram, Reading
from pdinference.planning.scaling.decode_load import DecodeWindow
from pdinference.planning.scaling.prefill_load import RECENT_SECONDS, PrefillWindow
from pdinference.planning.scaling.signals import WINDOW_SECONDS

FRESH_S: Final = 20.0
"""Maximum age of the latest reading. It allows for three failed scrapes."""
_SHORTEST_S: Final = 4.0
"""Minimum window for a rate."""
_LONGEST_S: Final = 60.0
"""Maximum time between two readings. Longer gaps restart the window."""

SILENT_AFTER: Final = 3
"""Consecutive failed scrapes after which a pod counts as silent."""

_MOST_READINGS: Final = 64
"""Maximum number of readings in a window. A scrape every 5 s gives eight."""


@dataclass(frozen=True, slots=True)
class TimedReading:
    """A reading with its time, on the monotonic clock and on the wall clock."""

    at: float
    when: datetime
    reading: Reading


class Window:
    """The readings of one container, from the newest back to the one that is `WINDOW_SECONDS` older.

    Attributes:
        failures: Failed scrapes since the last successful one.
        answered: Whether the pod has ever responded, including earlier containers.
    """

    def __init__(self) -> None:
        self._readings: deque[TimedReading] = deque(maxlen=_MOST_READINGS)
        self._since: float | None = None
        self.failures = 0
        self.answered = False

    def add(self, reading: TimedReading) -> None:
        """Add a reading. If a counter decreased, the reading is from a new process."""
        if self._readings and _is_apart(self._readings[-1], reading):
            self.restart()
        if self._since is None:
            self._since = reading.at
        self._readings.append(reading)
        while len(self._readings) > 2 and self._readings[1].at <= reading.at - WINDOW_SECONDS:
            self._readings.popleft()
        self.failures = 0
        self.answered = True

    @property
    def silent(self) -> bool:
        """Whether the last scrapes failed."""
        return self.failures >= SILENT_AFTER

    def restart(self) -> None:
        """Clear the readings, because counters restart with the process."""
        self._readings.clear()
        self._since = None

    def latest(self, now: float) -> TimedReading | None:
        """The latest reading, if it is fresh."""
        last = self._readings[-1] if self._readings else None
        return last if last is not None and now - last.at <= FRESH_S else None

    def age(self, now: float) -> float:
        """Seconds since the first reading of this process."""
        return 0.0 if self._since is None else now - self._since

    def span(self, now: float) -> tuple[TimedReading, TimedReading] | None:
        """The oldest and the newest reading, if they are far enough apart for rates."""
        last = self.latest(now)
        if last is None or last.at - self._readings[0].at < _SHORTEST_S:
            return None
        return self._readings[0], last

    @property
    def step(self) -> tuple[TimedReading, TimedReading] | None:
        """The last two readings; None before the second one."""
        return (self._readings[-2], self._readings[-1]) if len(self._readings) > 1 else None

    def before(self, seconds: float) -> TimedReading:
        """The newest reading at least this much older than the last one, or else the oldest. Requires a `span`."""
        since = self._readings[-1].at - seconds
        return next((timed for timed in reversed(self._readings) if timed.at <= since), self._readings[0])

    def mean_kv_usage(self) -> float | None:
        """Mean over all readings in the window."""
        usages = [usage for timed in self._readings if (usage := timed.reading.kv_usage) is not None]
        return sum(usages) / len(usages) if usages else None


def _is_apart(last: TimedReading, new: TimedReading) -> bool:
    """Whether two readings cannot be compared: they are from different processes, or too far apart."""
    counters = zip(new.reading.counters, last.reading.counters, strict=True)
    return new.at - last.at > _LONGEST_S or any(now < before for now, before in counters)


def grown(new: Histogram | None, old: Histogram | None, *, buckets: bool = False) -> Histogram | None:
    """The increase of a histogram between two readings, with buckets only on request."""
    if new is None or old is None:
        return None
    counts: tuple[tuple[float, float], ...] = ()
    if buckets:
        before = dict(old.buckets)
        counts = tuple((bound, max(0.0, count - before.get(bound, 0.0))) for bound, count in new.buckets)
    return Histogram(counts, max(0.0, new.total - old.total), max(0.0, new.count - old.count))


def decode_window(window: Window, now: float) -> DecodeWindow | None:
    """Inputs of the decode load; None if not known."""
    span = window.span(now)
    usage = window.mean_kv_usage()
    if span is None or usage is None:
        return None
    first, last = span[0].reading, span[1].reading
    tokens, answers = grown(last.inter_token, first.inter_token), grown(last.answer_lengths, first.answer_lengths)
    generated, before = last.generation_tokens, first.generation_tokens
    if tokens is None or answers is None or generated is None or before is None or last.waiting is None:
        return None
    return DecodeWindow(
        seconds=span[1].at - span[0].at,
        kv_usage=usage,
        token_seconds=tokens.total / tokens.count if tokens.count else 0.0,
        generated=generated - before,
        finished=answers.count,
        finished_tokens=answers.total,
        # A request whose KV cache is being pulled already has its blocks, and is no sign of a full pod.
        waiting=max(0.0, last.waiting - last.holding),
    )


def prefill_window(window: Window, now: float) -> PrefillWindow | None:
    """Inputs of the prefill load; None if not known."""
    span = window.span(now)
    if span is None:
        return None
    first, last, lately = *span, window.before(RECENT_SECONDS)
    prefill = grown(last.reading.prefill, first.reading.prefill)
    come, before, late = _come(last.reading), _come(first.reading), _come(lately.reading)
    if prefill is None or come is None or before is None or late is None:
        return None
    return PrefillWindow(
        seconds=last.at - first.at,
        prefill_seconds=prefill.total,
        finished=prefill.count,
        arrived=max(0.0, come - before),
        waiting=last.reading.waiting or 0.0,
        running=last.reading.running or 0.0,
        recent_seconds=last.at - lately.at,
        recent_arrived=max(0.0, come - late),
    )


def _come(reading: Reading) -> float | None:
    """Number of requests that have reached a P pod: finished, waiting and running."""
    if reading.prefill is None or reading.waiting is None or reading.running is None:
        return None
    return reading.prefill.count + reading.waiting + reading.running
