from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.autoscaling.scaling import every
from benchmarks.autoscaling.signals import SCRAPE_SECONDS, Signals, reading_of
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.loadmetrics.scraping.exposition import Exposition, Histogram, Reading
from pdinference.loadmetrics.scraping.scrape import INTERVAL_S
from pdinference.planning.scaling.signals import Signal
from pdinference.planning.scaling.vllm_metrics import VllmMetric
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet
from tests.advise.simulation.fleets import pods, poisson


def page(reading: Reading) -> list[bytes]:
    """The lines of vLLM's /metrics that have these numbers."""
    cache = reading.cache
    assert cache is not None
    values: dict[str, float | None] = {
        VllmMetric.KV_USAGE: reading.kv_usage,
        VllmMetric.RUNNING: reading.running,
        VllmMetric.WAITING: reading.waiting,
        VllmMetric.PROMPT_TOKENS: reading.prompt_tokens,
        VllmMetric.GENERATION_TOKENS: reading.generation_tokens,
        f'{VllmMetric.KV_FETCHES}{{stage="in_progress"}}': reading.holding,
        f'{VllmMetric.CACHE}{{num_gpu_blocks="{cache.blocks}",block_size="{cache.block_size}"}}': 1,
    }
    histograms = {
        VllmMetric.PROMPT_LENGTHS: reading.prompt_lengths,
        VllmMetric.ANSWER_LENGTHS: reading.answer_lengths,
        VllmMetric.PREFILL_SECONDS: reading.prefill,
        VllmMetric.INTER_TOKEN_SECONDS: reading.inter_token,
    }
    for name, histogram in histograms.items():
        assert histogram is not None
        values |= {f"{name}_sum": histogram.total, f"{name}_count": histogram.count}
    return [f"{name} {value!r}".encode() for name, value in values.items()]


def test_the_operator_reads_the_same_numbers_from_a_page_with_these_counters() -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    fleet.load(poisson(4, 30))
    clock.run(20)
    for role in ENGINE_ROLES:
        reading = reading_of(fleet.every(role)[0])
        assert sum(reading.counters) > 0
        exposition = Exposition()
        for line in page(reading):
            exposition.take(line)
        assert exposition.reading() == reading


def test_counters_are_those_of_the_requests_that_have_ended() -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    fleet.load(poisson(3, 60))
    clock.run()
    number, [p], [d] = len(fleet.requests), fleet.every(Role.PARAMETER), fleet.every(Role.DECODE)
    prefill, decode = reading_of(p), reading_of(d)
    assert decode.answer_lengths == Histogram((), 200 * number, number)
    assert decode.prompt_lengths == Histogram((), 5000 * number, number)
    assert prefill.answer_lengths == Histogram((), number, number)
    assert decode.generation_tokens == 200 * number
    assert prefill.prefill is not None
    assert prefill.prefill.count == number
    assert p.engine.busy <= prefill.prefill.total < 1.6 * p.engine.busy  # two prompts in a step count twice
    spent = sum(request.done_at - request.first_at for request in fleet.requests)
    assert decode.inter_token is not None
    assert decode.inter_token.total == pytest.approx(spent, rel=0.02)
    for reading in (prefill, decode):
        assert (reading.running, reading.waiting, reading.holding) == (0, 0, 0)
        assert reading.kv_usage == pytest.approx(0, abs=1e-6)


@given(times=st.lists(st.floats(0, 40), max_size=30).map(sorted), cache=st.sampled_from([30_000, 899_104]))
@settings(max_examples=25, deadline=None)
def test_reading_changes_nothing_and_counters_never_decrease(times: list[float], cache: int) -> None:
    def run(times: list[float]) -> tuple[list[float], list[Reading]]:
        clock, readings = Clock(), list[Reading]()
        fleet = SimulatedFleet(clock, pods(cache_tokens=cache))
        fleet.load(poisson(3, 30, answer=400))
        [pod] = fleet.every(Role.DECODE)
        for at in times:
            clock.at(at, lambda: readings.append(reading_of(pod)))
        clock.run()
        return [request.done_at for request in fleet.requests], readings

    undisturbed, _ = run([])
    ends, readings = run(times)
    assert ends == undisturbed
    for before, after in pairwise(readings):
        assert all(old <= new for old, new in zip(before.counters, after.counters, strict=True))
        assert 0 <= (after.kv_usage or 0) <= 1


def test_counters_grow_within_a_long_run_of_steps() -> None:
    """Steps without events are computed at once. Their tokens must not appear at the end of it alone."""
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    fleet.load(poisson(100, 0.05, prompt=100, answer=4000))
    clock.run(5)
    [pod] = fleet.every(Role.DECODE)
    halfway = reading_of(pod).generation_tokens or 0
    clock.run(10)
    later = reading_of(pod).generation_tokens or 0
    assert halfway > 0
    assert later == pytest.approx(2 * halfway, rel=0.1)


@pytest.mark.parametrize(("rate", "prompt"), [(2, 8000), (3.5, 8000)])
def test_loads_are_shares_of_the_pods_capacity(rate: float, prompt: int) -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    signals = Signals(clock, fleet)
    every(clock, SCRAPE_SECONDS, signals.read)
    seen: list[float] = []
    every(clock, 15, lambda: seen.append(signals.metrics(Role.PARAMETER, {})[Signal.PREFILL_LOAD] or 0), after=60)
    fleet.load(poisson(rate, 1200, prompt=prompt))
    clock.run(1200)
    [pod] = fleet.every(Role.PARAMETER)
    assert sum(seen) / len(seen) == pytest.approx(pod.engine.busy / 1200, rel=0.3)


def test_a_signal_is_unknown_before_two_readings() -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    signals = Signals(clock, fleet)
    read = partial(signals.metrics, Role.DECODE, {})
    assert set(read().values()) == {None}
    signals.read()
    clock.at(5, signals.read)
    clock.run()
    assert read()[Signal.KV_USAGE] == 0


def test_the_interval_is_the_operators() -> None:
    assert SCRAPE_SECONDS == INTERVAL_S
