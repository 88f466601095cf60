"""Each request its own way, by the router's own rule, in simulated time."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from benchmarks.adaptive import ARRANGEMENTS, LOADS, Load, measure
from pdinference.router.ways import WITHOUT_DECODE
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet
from tests.advise.simulation.test_fleet import ARRIVALS

ADAPTIVE = ARRANGEMENTS["Adaptive"]


@settings(max_examples=30)
@given(ARRIVALS)
def test_no_request_is_lost_and_nothing_is_counted_at_the_end(arrivals: list[Arrival]) -> None:
    assert ADAPTIVE.split is not None
    clock = Clock()
    fleet = SimulatedFleet(clock, replace(ADAPTIVE, engines=2, split=replace(ADAPTIVE.split, engines=2, routers=3)))
    fleet.load(arrivals)
    clock.run()
    assert all(request.arrival.at < request.first_at <= request.done_at for request in fleet.requests)
    for pod in (*fleet.parameter, *fleet.decode):
        assert pod.known.requests == 0
        for ways in fleet.ways:
            assert ways.answers(pod) == 0
            assert ways.seen(pod).queue.ahead(clock.now) == pytest.approx(0, abs=1e-6)
        assert pod.engine.kv_used() == pytest.approx(0, abs=1e-3)


def test_d_computes_no_prompt_by_choice_where_it_may_not() -> None:
    assert ADAPTIVE.split is not None
    limited = replace(ADAPTIVE, split=replace(ADAPTIVE.split, allowed=WITHOUT_DECODE))
    computed = {}
    for name, arrangement in {"allowed": ADAPTIVE, "not allowed": limited}.items():
        clock = Clock()
        fleet = SimulatedFleet(clock, arrangement)
        fleet.load(Arrival(at=number / 4, prompt=300, answer=20) for number in range(80))
        clock.run()
        assert all(request.done_at > 0 for request in fleet.requests)
        computed[name] = sum(pod.engine.prefill_seconds + pod.engine.busy for pod in fleet.decode)
    assert computed["not allowed"] == 0 < computed["allowed"]


@pytest.mark.parametrize(
    ("load", "whole", "first_token"),
    [
        (LOADS[0], 1.02, 0.9),
        (LOADS[1], 1.02, 0.5),  # short prompts, long answers: P answers, too
        (LOADS[3], 1.02, 0.3),  # a mix
        (LOADS[6], 1.02, 0.5),  # conversations: D has the past of each
    ],
    ids=str,
)
def test_whole_requests_are_as_fast_as_in_the_better_mode(load: Load, whole: float, first_token: float) -> None:
    """Bounds have some room: one run of a minute, of which the first requests are for learning."""
    always, aggregated, adaptive = (measure(load, one, 60, 1) for one in ARRANGEMENTS.values())
    assert adaptive.whole <= whole * min(always.whole, aggregated.whole)
    assert adaptive.ttft[0] <= first_token * always.ttft[0]
    assert adaptive.gap <= 1.7 * always.gap
