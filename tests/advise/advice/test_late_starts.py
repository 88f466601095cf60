"""Replicas that have to be there before pods can start for a rise of the load."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Role
from pdinference_advise.advice.late_starts import Starts, least_share
from pdinference_advise.advice.workload.lengths import parse
from pdinference_advise.advice.workload.synthetic import RequestClass, Synthetic
from pdinference_advise.advice.workload.trace import Trace
from pdinference_advise.simulation.arrivals import Arrival
from tests.advise.advice.questions import answer, question


def trace(rate: Callable[[int], int], minutes: int) -> Trace:
    """Even requests of 100 tokens, by the minute."""
    arrivals = tuple(
        Arrival(at=60 * minute + 60 * number / rate(minute), prompt=80, answer=20)
        for minute in range(minutes)
        for number in range(rate(minute))
    )
    return Trace(arrivals, 60.0 * minutes, "a test")


STEP = trace(lambda minute: 60 if minute < 30 else 240, 60)
SLOW = trace(lambda minute: 6000 + 300 * minute, 30)


@pytest.mark.parametrize(
    ("load", "seconds", "share"),
    [
        (STEP, 90.0, pytest.approx(1.0, abs=0.1)),
        (SLOW, 60.0, 0.0),
        (trace(lambda minute: 100, 30), 3000.0, None),
        (trace(lambda minute: 100, 60), 90.0, 0.0),
    ],
    ids=["the load is four times as high at once", "it grows by less than the target leaves free", "short", "even"],
)
def test_what_comes_before_pods_are_ready_needs_pods_before(load: Trace, seconds: float, share: float | None) -> None:
    assert least_share(load, Role.DECODE, seconds) == share


def test_a_rise_that_pods_are_in_time_for_counts_once_it_is_too_fast_for_their_start() -> None:
    of = {seconds: least_share(SLOW, Role.PARAMETER, seconds) or 0.0 for seconds in (60.0, 240.0, 600.0)}
    assert of[60.0] == 0.0 < of[240.0] < of[600.0]


@pytest.mark.parametrize("rate", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("seed", range(4))
def test_chance_is_no_rise(rate: float, seed: int) -> None:
    """Requests that come at random at a constant rate, with lengths of all sizes."""
    shape = RequestClass(parse("800~3000", "prompt"), parse("200~900", "answer"))
    load = Synthetic(rate, (shape,)).trace(7200, seed=seed)
    assert not any(least_share(load, Role.DECODE, seconds) for seconds in (15.0, 90.0, 300.0))


@pytest.mark.parametrize(("rate", "known"), [(0.02, False), (0.2, True), (5.0, True)])
def test_a_step_of_few_requests_is_seen_or_not_known_but_never_denied(rate: float, known: bool) -> None:
    """A load that is nine times as high from half time on, with lengths of all sizes."""
    shape = RequestClass(parse("800~3000", "prompt"), parse("200~900", "answer"))
    low, high = (Synthetic(each, (shape,)).trace(10800, seed=1) for each in (rate, 9 * rate))
    later = tuple(replace(one, at=10800 + one.at) for one in high.arrivals)
    load = Trace(low.arrivals + later, 21600.0, "a test")
    shares = [least_share(load, Role.DECODE, seconds) for seconds in (180.0, 600.0, 1800.0)]
    assert 0.0 not in shares
    assert not known or (shares[-1] or 0.0) > 0.3


def test_the_end_of_a_load_counts() -> None:
    even = trace(lambda minute: 60, 20)
    burst = tuple(Arrival(at=1200 + number / 1000, prompt=80, answer=20) for number in range(9000))
    load = replace(even, arrivals=even.arrivals + burst, seconds=1214.0)
    assert least_share(load, Role.DECODE, 90.0) == 1.0
    assert least_share(replace(load, arrivals=burst), Role.DECODE, 90.0) == 1.0


def test_pods_that_a_wave_before_left_running_count() -> None:
    waves = trace(lambda minute: 200 if minute % 4 == 0 else 100, 60)
    pauses = trace(lambda minute: 200 if minute % 30 == 29 else 100, 60)
    shares = [least_share(load, Role.PARAMETER, 60.0) for load in (waves, pauses)]
    assert shares == [0.0, 1.0]  # P keeps pods for five minutes, and four apart are the waves


@given(st.lists(st.integers(1, 50), min_size=12, max_size=40), st.floats(1, 300), st.floats(1, 300))
def test_longer_starts_never_need_fewer_pods_of_a_load_that_only_rises(
    rates: list[int], one: float, other: float
) -> None:
    rising = sorted(rates)
    load = trace(lambda minute: rising[minute], len(rising))
    shares = [least_share(load, Role.DECODE, seconds) for seconds in sorted((one, other))]
    assert shares[1] is None or (shares[0] or 0.0) <= shares[1]


@pytest.mark.parametrize(
    ("status", "known"),
    [
        ({"roles": {"decode": {"start": {"typicalSeconds": 96}}}}, {Role.DECODE: 96.0}),
        ({"roles": {"decode": {"start": {"typicalSeconds": 10**9}}, "parameter": []}}, {}),
        ({"roles": {"decode": {"start": {"typicalSeconds": True}}}}, {}),
        ("a text", {}),
        (None, {}),
    ],
)
def test_starts_of_a_status(status: Any, known: dict[Role, float]) -> None:
    assert Starts.of_status(status).seconds == known


def test_the_smallest_number_of_replicas_bears_what_comes_before_pods_are_ready() -> None:
    asked = question(("4xH200",), rate=40.0, prompt="1000", answer="100", ttft="500ms", tpot="30ms")
    times = 6 * 600
    first = replace(asked.load.at_rate(8.0), source="a test")
    calm = replace(first, arrivals=tuple(one for n, one in enumerate(first.arrivals) if n % 8 == 0), seconds=times)
    quiet = tuple(replace(calm.arrivals[n % len(calm.arrivals)], at=float(n)) for n in range(times))
    burst = tuple(replace(one, at=times + one.at) for one in asked.load.arrivals)
    load = replace(asked.load, arrivals=quiet + burst, seconds=times + asked.load.seconds)
    shown = {}
    for starts in (Starts({}, ""), Starts.stated(90.0)):
        advice = answer(replace(asked, load=load, starts=starts))
        shown[starts.source] = advice.document()["spec"]["decode"]["autoscaling"]["minReplicas"], advice.of_range
    assert shown[""][0] < shown["--start"][0]
    assert "how long a pod takes to start is not known" in shown[""][1][0]
    assert "A pod takes 90 s to start (--start), and the load rises faster" in shown["--start"][1][0]
