"""What router pods report of streamed answers, over a window."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pdinference.api import latencies
from pdinference.api.latencies import ABANDONED_BOUNDS, FIRST_TOKEN_BOUNDS, OUTPUT_TOKEN_BOUNDS
from pdinference.loadmetrics.counter_window import CounterWindow
from pdinference.loadmetrics.streams import StreamExposition, stream_counts
from pdinference.planning.objectives import StatedObjectives, attainments
from pdinference.router.record import Metrics
from pdinference.router.timing import LatencyMetrics


class Router:
    """A router's real metrics."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.window: CounterWindow | None = None

    def answer(self, *first_token: float, per_token: float = 0.01) -> None:
        for seconds in first_token:
            self.metrics.latencies.first_token.observe(seconds)
            self.metrics.latencies.output_token.observe(per_token)
            self.metrics.stages.labels("prefill").observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.metrics.registry)

    def read(self, at: float) -> CounterWindow:
        counts = exposition(self.text()).counts
        assert counts is not None
        if self.window is None:
            self.window = CounterWindow(at, counts)
        else:
            self.window.add(at, counts)
        return self.window


def exposition(text: bytes) -> StreamExposition:
    found = StreamExposition()
    for line in text.splitlines():
        found.take(line)
    return found


def test_the_window_has_the_answers_of_the_last_minutes() -> None:
    router = Router()
    router.answer(9.0)  # before the operator reads it
    router.read(0)
    for number in range(1, 21):
        router.answer(0.1, 0.7)
        window = router.read(30 * number)
    counts = stream_counts([window])
    assert 270 <= counts.seconds <= 360
    found = attainments(StatedObjectives(0.5, 0.03, 99), counts)
    assert (found["ttft"].requests, found["ttft"].kept) == (counts.seconds / 30 * 2, 0.5)
    assert found["tpot"].kept == 1
    assert counts.prefill_seconds == pytest.approx(counts.seconds / 30 * 0.8)


def test_router_pods_add_up_and_a_first_reading_has_no_answers() -> None:
    one, other = Router(), Router()
    one.answer(0.1)
    other.answer(0.1)
    assert stream_counts([one.read(0), other.read(0)]).seconds == 0
    one.answer(0.1)
    other.answer(0.1, 0.2)
    other.metrics.latencies.failed.inc()
    counts = stream_counts([one.read(60), other.read(60)])
    assert (sum(counts.first_token), counts.failed) == (3, 1)


def test_a_router_that_restarts_begins_a_new_window() -> None:
    router = Router()
    router.answer(*[0.1] * 9)
    router.read(0)
    router.metrics = Metrics()
    router.answer(0.1)
    assert router.read(60).seconds == 0
    router.answer(0.1)
    assert sum(stream_counts([router.read(120)]).first_token) == 1


@pytest.mark.parametrize("value", ["NaN", "-1", "1e999", "1e16"])
def test_a_number_that_is_none_makes_all_of_it_unknown(value: str) -> None:
    text = (
        Router()
        .text()
        .replace(
            b'_first_token_seconds_bucket{le="0.5"} 0.0', b'_first_token_seconds_bucket{le="0.5"} ' + value.encode()
        )
    )
    assert exposition(text).counts is None
    assert exposition(Router().text()).counts is not None


def test_a_histogram_that_decreases_and_an_older_router_are_unknown() -> None:
    text = (
        Router()
        .text()
        .replace(b'_first_token_seconds_bucket{le="0.5"} 0.0', b'_first_token_seconds_bucket{le="0.5"} 7.0')
    )
    assert exposition(text).counts is None
    assert exposition(b'pdinference_router_stage_seconds_sum{stage="queue"} 1\n').counts is None


def test_unknown_buckets_are_ignored() -> None:
    more = f'{latencies.FIRST_TOKEN}_bucket{{le="0.123456"}} 5\n{latencies.FIRST_TOKEN}_bucket{{le="x"}} 5\n'.encode()
    assert exposition(Router().text() + more).counts == exposition(Router().text()).counts


def test_windows_and_series_are_small() -> None:
    router = Router()
    for number in range(200):
        router.answer(*[0.01 * 1.05**step for step in range(150)], per_token=0.001 * 1.04 ** (number % 100))
        window = router.read(30 * number)
    assert sum(len(packed) for _, packed in window._readings) + len(window._latest) < 8000
    registry = CollectorRegistry()
    LatencyMetrics(registry)
    lines = [line for line in generate_latest(registry).splitlines() if not line.startswith(b"#")]
    assert len(lines) < len(FIRST_TOKEN_BOUNDS) + len(OUTPUT_TOKEN_BOUNDS) + len(ABANDONED_BOUNDS) + 20 < 260
