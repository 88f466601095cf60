"""The autoscaling benchmark: deterministic, and as fast as the measured pods."""

from dataclasses import replace

import pytest

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling import kv_targets
from benchmarks.autoscaling.pods import arrangement, token_seconds
from benchmarks.autoscaling.policies import ALL, OURS, STATIC, Kpa, Policy
from benchmarks.autoscaling.run import SPEC, simulate
from benchmarks.autoscaling.traces import CHAT, MEMORY_TRACES, TRACES, Trace
from benchmarks.llama import KV_TOKENS
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.signals import Signal
from pdinference_advise.simulation.fleet import SimulatedFleet
from tests.advise.simulation.llama import SPLIT

BURST = replace(next(trace for trace in TRACES if trace.name == "burst"), seconds=200)


@pytest.mark.parametrize("policy", ALL[:2], ids=[policy.name for policy in ALL[:2]])
def test_the_same_seed_gives_the_same_outcome(policy: Policy) -> None:
    assert simulate(BURST, 5, policy) == simulate(BURST, 5, policy)


def test_enough_pods_keep_the_objectives() -> None:
    outcome = simulate(BURST, 5, STATIC)
    assert outcome.met > 0.97
    assert outcome.flaps == 0


def test_a_load_may_begin_with_silence() -> None:
    quiet = Trace("quiet", 200, lambda _rng, _seconds: {CHAT: lambda at: 1.0 if at > 100 else 0.0})
    assert simulate(quiet, 5, OURS).met > 0.97


def test_pods_that_start_later_help_later() -> None:
    assert simulate(BURST, 5, OURS, startup=10).met > simulate(BURST, 5, OURS, startup=200).met


@pytest.mark.parametrize("trace", [*TRACES, *MEMORY_TRACES], ids=lambda trace: trace.name)
def test_requests_come_in_order_and_at_the_stated_rate(trace: Trace) -> None:
    arrivals = list(trace.arrivals(3))
    assert arrivals == sorted(arrivals, key=lambda arrival: arrival.at)
    streams = trace.streams(3)
    expected = sum(sum(rate(at) for rate in streams.values()) for at in range(int(trace.seconds)))
    assert len(arrivals) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("trace", MEMORY_TRACES, ids=lambda trace: trace.name)
def test_a_request_fits_into_an_empty_cache(trace: Trace) -> None:
    """Or it would wait for ever, and all that come after it: vLLM refuses it at once."""
    assert max(arrival.prompt + arrival.answer for arrival in trace.arrivals(3)) <= trace.cache_tokens


def test_a_small_cache_makes_requests_wait_and_a_target_of_demand_saves_some() -> None:
    trace = replace(next(trace for trace in MEMORY_TRACES if trace.name == "small cache, reasoning"), seconds=1800)
    load_alone = Policy("load alone", lambda role: kv_targets.scaler({Signal.DECODE_LOAD: 0.9}, role))
    demand = {Signal.DECODE_LOAD: 0.9, Signal.KV_DEMAND: 0.9}
    with_demand = Policy("with demand", lambda role: kv_targets.scaler(demand, role))
    before, now = simulate(trace, 1, load_alone), simulate(trace, 1, with_demand)
    assert now.preemptions < 0.8 * before.preemptions
    assert now.met > before.met


def test_the_pods_are_those_whose_predictions_are_compared_with_measurements() -> None:
    """`benchmarks.advise` has the comparison."""
    ours, measured = arrangement(dict.fromkeys(ENGINE_ROLES, 1), routing=const.ROUTING), SPLIT
    assert ours.split is not None
    assert measured.split is not None
    assert ours.kind.steps == measured.kind.steps
    assert ours.kind.limits.kv_tokens == pytest.approx(measured.kind.limits.kv_tokens, rel=0.01)
    for mine, theirs in ((ours.kind, measured.kind), (ours.split.kind, measured.split.kind)):
        assert replace(mine.limits, requests=0, kv_tokens=0) == replace(theirs.limits, requests=0, kv_tokens=0)
    assert (ours.split.way, ours.split.token_bytes) == (measured.split.way, measured.split.token_bytes)


def test_a_full_cache_slows_decode_down() -> None:
    assert token_seconds(6000, 6000) == pytest.approx(0.0044, rel=0.15)
    assert 6 * token_seconds(6000, 6000) < token_seconds(KV_TOKENS, 6000) < const.TPOT_OBJECTIVE


@pytest.mark.parametrize("policy", ALL[:-1], ids=[policy.name for policy in ALL[:-1]])
def test_a_budget_holds_whatever_is_recommended(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    add = SimulatedFleet.add

    def counting(fleet: SimulatedFleet, role: Role, ready_at: float) -> None:
        add(fleet, role, ready_at)
        used.append(sum(pod.gone_at is None for each in ENGINE_ROLES for pod in fleet.every(each)))

    monkeypatch.setattr(SimulatedFleet, "add", counting)
    simulate(replace(BURST, seconds=600), 5, policy, spec=replace(SPEC, budget=5))
    assert max(used) == 5


class TestKpa:
    def test_it_follows_the_mean_of_the_stable_window(self) -> None:
        scaler = Kpa("load", 1.0)
        for now in range(0, 180, 10):
            wanted = scaler.sync(now, 4, {"load": 4.0})
        assert wanted == 4
        assert scaler.sync(180, 4, {"load": 0.0}) == 4, "one value of eighteen"

    def test_it_panics_at_twice_the_pods_and_then_only_goes_up(self) -> None:
        scaler = Kpa("load", 1.0)
        assert scaler.sync(0, 2, {"load": 8.0}) == 8
        assert scaler.sync(60, 8, {"load": 1.0}) == 8
        for now in range(70, 400, 10):
            wanted = scaler.sync(now, 8, {"load": 1.0})
        assert wanted == 1
