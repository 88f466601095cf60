"""What a router pod reports of the latencies of streamed answers. The numbers of pods are untrusted."""

import math
from array import array
from collections.abc import Iterable
from typing import Final

from pdinference.api import latencies, names
from pdinference.loadmetrics.counter_window import CounterWindow
from pdinference.loadmetrics.scraping.text_format import measured, name_of, sample
from pdinference.planning.objectives import StreamCounts, total

_Series = tuple[bytes, bytes]
"""Name and value of the label, if it has one."""

_STAGES: Final = f"{names.METRIC_STAGES}_sum".encode()
_HISTOGRAMS: Final = {
    f"{latencies.FIRST_TOKEN}_bucket".encode(): latencies.FIRST_TOKEN_BOUNDS,
    f"{latencies.OUTPUT_TOKEN}_bucket".encode(): latencies.OUTPUT_TOKEN_BOUNDS,
    f"{latencies.ABANDONED}_bucket".encode(): latencies.ABANDONED_BOUNDS,
}
_BUCKETS: Final = {
    (name, bound): position
    for position, (name, bound) in enumerate(
        (name, bound) for name, bounds in _HISTOGRAMS.items() for bound in (*bounds, math.inf)
    )
}
"""Position of each bucket among the counts."""
_SERIES: Final[dict[_Series, int]] = {
    series: position
    for position, series in enumerate(
        (
            (latencies.FAILED.encode(), b""),
            *((_STAGES, stage) for stage in (b"queue", b"prefill", b"first_token")),
        ),
        start=len(_BUCKETS),
    )
}
"""Position of each other counter, after the buckets. Those that are missing are 0."""
_NAMES: Final = frozenset({*_HISTOGRAMS, *(name for name, _ in _SERIES)})


class StreamExposition:
    """Takes the lines of a response of a router pod."""

    def __init__(self) -> None:
        self._counts = array("d", [math.nan] * len(_BUCKETS) + [0.0] * len(_SERIES))

    def take(self, line: bytes) -> None:
        """Add a line.

        Raises:
            UnreadableError: The line is malformed.
        """
        name = name_of(line)
        if name not in _NAMES:
            return
        found = sample(line)
        if name in _HISTOGRAMS:
            text = found.labels.get(b"le", b"")
            position = _BUCKETS.get((name, math.inf if text == b"+Inf" else measured(text)))
        else:
            position = _SERIES.get((name, found.labels.get(b"stage", b"")))
        if position is not None:
            self._counts[position] = found.value

    @property
    def counts(self) -> "array[float] | None":
        """The counts, cumulative as in the text; None if one is missing or no number, or a histogram decreases."""
        if any(map(math.isnan, self._counts)) or any(min(grown) < 0 for grown in _histograms(self._counts)):
            return None
        return self._counts


def stream_counts(windows: Iterable[CounterWindow]) -> StreamCounts:
    """The streamed answers of all router pods of a resource."""
    return total([_counted(window) for window in windows])


def _counted(window: CounterWindow) -> StreamCounts:
    growth = window.growth
    first_token, output_token, abandoned = (tuple(max(0.0, count) for count in grown) for grown in _histograms(growth))
    return StreamCounts(window.seconds, first_token, output_token, abandoned, *growth[len(_BUCKETS) :])


def _histograms(counts: Iterable[float]) -> list[tuple[float, ...]]:
    """The count of each bucket alone."""
    cumulative, found, begin = tuple(counts), [], 0
    for bounds in _HISTOGRAMS.values():
        end = begin + len(bounds) + 1
        part = cumulative[begin:end]
        found.append(tuple(count - below for below, count in zip((0.0, *part), part, strict=False)))
        begin = end
    return found
