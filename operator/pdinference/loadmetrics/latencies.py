"""Quantiles of latencies over the pods of a role, for HPA metrics of type Value and for dashboards."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pdinference.loadmetrics.scraping.exposition import Histogram
from pdinference.loadmetrics.scraping.window import TimedReading, grown
from pdinference.loadmetrics.signals import LoadUnavailableError, PodLoad, SignalMeasurement
from pdinference.planning.scaling.signals import LATENCY_METRICS, Latency

_WARM_UP_S: Final = 60.0
"""Time after the start of a process during which its latencies are ignored: its first requests are slow."""


def measure_latency(metric: str, pods: Sequence[PodLoad], *, now: float) -> SignalMeasurement:
    """A quantile, in milliseconds, over recent requests of all pods; 0 without requests.

    Raises:
        LoadUnavailableError: Requests run or wait, but no latency was measured.
    """
    kind, quantile = LATENCY_METRICS[metric]
    return measure_latencies(kind, pods, (quantile,), now=now)[0]


def measure_latencies(
    kind: Latency, pods: Sequence[PodLoad], quantiles: Iterable[float], *, now: float
) -> list[SignalMeasurement]:
    """Several quantiles, in milliseconds, over the same requests.

    Raises:
        LoadUnavailableError: Requests run or wait, but no latency was measured.
    """
    spans = [span for pod in pods if pod.window.age(now) >= _WARM_UP_S and (span := pod.window.span(now)) is not None]
    counts = _summed(found for span in spans if (found := _between(kind, span)) is not None)
    known = any(counts.values())
    if not known and any(last.reading.running or last.reading.waiting for _, last in spans):
        raise LoadUnavailableError(f"no request of the last 30 s has a {kind} yet")
    if not spans:
        raise LoadUnavailableError("no pod has reported metrics for 60 s yet")
    oldest = min(last.when for _, last in spans)
    return [SignalMeasurement(1000 * (quantile_of(quantile, counts) or 0.0), oldest) for quantile in quantiles]


def quantile_of(quantile: float, counts: Mapping[float, float]) -> float | None:
    """A quantile of a histogram, computed like Prometheus' `histogram_quantile`; None if it is empty.

    `counts` has the cumulative count of each bucket by its upper bound. Values within a bucket are interpolated, and
    the result is at most the highest finite bound.
    """
    bounds = sorted(counts)
    if not bounds or not counts[bounds[-1]]:
        return None
    rank = quantile * counts[bounds[-1]]
    lower, below = 0.0, 0.0
    for bound in bounds:
        if counts[bound] >= rank:
            if bound == float("inf"):
                return lower
            share = (rank - below) / (counts[bound] - below) if counts[bound] > below else 0.0
            return lower + (bound - lower) * share
        lower, below = bound, counts[bound]
    return lower


def _summed(histograms: Iterable[Histogram]) -> dict[float, float]:
    counts: dict[float, float] = {}
    for histogram in histograms:
        for bound, count in histogram.buckets:
            counts[bound] = counts.get(bound, 0.0) + count
    return counts


def _between(kind: Latency, span: tuple[TimedReading, TimedReading]) -> Histogram | None:
    first, last = (timed.reading for timed in span)
    if kind is Latency.TIME_TO_FIRST_TOKEN:
        return grown(last.first_token, first.first_token, buckets=True)
    return grown(last.inter_token, first.inter_token, buckets=True)
