"""Quantiles over pods."""

import pytest

from pdinference.loadmetrics.latencies import measure_latency, quantile_of
from pdinference.loadmetrics.scraping.exposition import Histogram
from pdinference.loadmetrics.signals import LoadUnavailableError, PodLoad, SignalMeasurement
from pdinference.planning.scaling.signals import LATENCY_METRICS
from tests.loadmetrics.readings import pod, told

NOW = 200.0
P90 = "pdinference_time_to_first_token_milliseconds_p90"
INF = float("inf")


def counted(fast: float, slow: float) -> Histogram:
    return Histogram(((0.1, fast), (1.0, fast + slow), (INF, fast + slow)), fast * 0.05 + slow * 0.5, fast + slow)


def steady(fast: float, slow: float, **numbers: float) -> PodLoad:
    """A pod that has been answering for two minutes, and counted this in the last half."""
    moments = [(NOW - 120, told()), (NOW - 60, told()), (NOW - 30, told(first_token=counted(0, 0)))]
    return pod(*moments, (NOW, told(first_token=counted(fast, slow), **numbers)))


def quantile(*pods: PodLoad) -> SignalMeasurement:
    return measure_latency(P90, list(pods), now=NOW)


def test_pods_are_pooled_not_averaged() -> None:
    assert quantile(steady(90, 0), steady(0, 10)).value == pytest.approx(100.0)


def test_within_a_bucket_it_is_linear() -> None:
    assert quantile_of(0.5, {0.1: 0.0, 1.0: 10.0, INF: 10.0}) == pytest.approx(0.55)


def test_above_the_last_bound_it_is_that_bound() -> None:
    assert quantile_of(0.99, {0.1: 1.0, 1.0: 1.0, INF: 10.0}) == 1.0


def test_nothing_to_do_is_no_latency() -> None:
    assert quantile(steady(0, 0)).value == 0.0


def test_waiting_requests_without_a_measured_latency_are_not_fast() -> None:
    with pytest.raises(LoadUnavailableError, match="no request of the last 30 s"):
        quantile(steady(0, 0, waiting=3.0))


def test_the_first_minute_of_a_process_does_not_count() -> None:
    young = pod((NOW - 30, told(first_token=counted(0, 0))), (NOW, told(first_token=counted(0, 10))))
    assert quantile(steady(10, 0), young).value < 100
    with pytest.raises(LoadUnavailableError, match="reported metrics for 60 s"):
        quantile(young)


def test_every_name_says_what_and_which_quantile() -> None:
    assert len(LATENCY_METRICS) == 6
    assert LATENCY_METRICS[P90][1] == 0.9
