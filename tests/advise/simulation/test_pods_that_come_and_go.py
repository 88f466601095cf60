from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.performance.links import NVLINK
from pdinference_advise.simulation.arrangement import Arrangement, Split
from pdinference_advise.simulation.arrivals import Arrival
from pdinference_advise.simulation.clock import Clock
from pdinference_advise.simulation.fleet import SimulatedFleet
from tests.advise.simulation.fleets import pods, poisson

SECONDS = 60.0

CHANGES = st.lists(
    st.tuples(
        st.floats(0, SECONDS),
        st.sampled_from(ENGINE_ROLES),
        st.one_of(st.none(), st.floats(0, 30)),  # drain the youngest, or add one that takes so long to start
    ),
    max_size=12,
)
LENGTHS = st.lists(st.tuples(st.integers(1, 30_000), st.integers(1, 600)), min_size=1, max_size=60)


def change(clock: Clock, fleet: SimulatedFleet, role: Role, starts: float | None) -> None:
    staying = [pod for pod in fleet.every(role) if not pod.draining]
    if starts is not None:
        fleet.add(role, clock.now + starts)
    elif staying:
        fleet.drain(staying[-1])


@given(changes=CHANGES, lengths=LENGTHS, cache=st.sampled_from([40_000, 899_104]))
@settings(max_examples=60, deadline=None)
def test_no_request_is_lost_and_drained_pods_end_without_requests(
    changes: list[tuple[float, Role, float | None]], lengths: list[tuple[int, int]], cache: int
) -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods(cache_tokens=cache))
    fleet.load(Arrival(SECONDS * n / len(lengths), *length) for n, length in enumerate(lengths))
    for at, role, starts in changes:
        clock.at(at, partial(change, clock, fleet, role, starts))
    for role in ENGINE_ROLES:  # whoever waits for a pod gets one in the end
        clock.at(SECONDS, partial(fleet.add, role, SECONDS + 5))
    clock.run()
    assert len(fleet.requests) == len(lengths)
    for request in fleet.requests:
        assert request.arrival.at < request.prefilled_at < request.pulled_at < request.first_at <= request.done_at
    last = max(request.done_at for request in fleet.requests)
    for role in ENGINE_ROLES:
        assert sum(pod.engine.finished for pod in fleet.every(role)) == len(lengths)
        for pod in fleet.every(role):
            assert (pod.gone_at is not None) == pod.draining
            assert pod.gone_at is None or pod.created_at <= pod.gone_at <= max(last, SECONDS)
            assert not pod.known.under_way
            assert pod.engine.kv_used() == pytest.approx(0, abs=1e-3)


def test_a_pod_that_is_not_ready_gets_no_request_and_helps_from_then_on() -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    fleet.load(poisson(4, 60))
    fleet.add(Role.PARAMETER, 30)
    new = fleet.every(Role.PARAMETER)[-1]
    clock.run(29.9)
    assert not new.known.under_way
    assert new not in fleet.serving(Role.PARAMETER)
    clock.run()
    assert new.engine.finished > 40


def test_requests_wait_for_the_first_pod_of_a_role() -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods())
    for role in ENGINE_ROLES:
        fleet.drain(fleet.every(role)[0])
    fleet.submit(Arrival(0, 1000, 10))
    fleet.add(Role.PARAMETER, 20)
    fleet.add(Role.DECODE, 50)
    clock.run()
    [request] = fleet.requests
    assert 20 < request.prefilled_at < 21
    assert 50 < request.first_at < 51


def test_a_draining_p_stays_until_d_has_its_kv_cache() -> None:
    clock = Clock()
    fleet = SimulatedFleet(clock, pods(parameter=2))
    fleet.submit(Arrival(0, 8000, 10))
    busy = next(pod for pod in fleet.every(Role.PARAMETER) if pod.known.under_way)
    fleet.drain(busy)
    assert busy.gone_at is None
    clock.run()
    [request] = fleet.requests
    assert busy.gone_at == request.pulled_at > request.prefilled_at


def test_groups_do_not_change() -> None:
    alone = pods()
    kind = alone.kind
    fleet = SimulatedFleet(Clock(), Arrangement(kind, 2, Split(kind, 2, NVLINK, 131_072, groups=2)))
    with pytest.raises(ValueError, match="HostLocal"):
        fleet.add(Role.DECODE, 0)
    with pytest.raises(ValueError, match="HostLocal"):
        fleet.drain(fleet.every(Role.DECODE)[0])
