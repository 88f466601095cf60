"""How long requests wait for pods that start: the arithmetic, and what clients are told."""

import asyncio
import contextlib

import pytest

from pdinference.router import dispatch
from pdinference.router.waits import Waits
from tests.router.engines import Fleet, fleet
from tests.router.test_failures import queued

FORGET = 100.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def waits(clock: Clock) -> Waits:
    return Waits(FORGET, clock=clock)


def wait(waits: Waits, clock: Clock, seconds: float, *, served: bool = True, for_start: bool = True) -> int | None:
    """A request that waits so long; what it would be told at its end."""
    with contextlib.suppress(TimeoutError), waits.one(for_start=for_start):
        clock.now += seconds
        told = waits.left_seconds
        give_up(not served)
    return told


def give_up(really: bool) -> None:
    if really:
        raise TimeoutError


def test_a_wait_is_expected_to_take_as_long_as_the_last_ones(waits: Waits, clock: Clock) -> None:
    assert wait(waits, clock, 60) is None, "nothing is known before the first start"
    assert wait(waits, clock, 20) == 40
    assert wait(waits, clock, 39) == 1, "the mean of 60 and 20 is 40"
    assert wait(waits, clock, 90) is None, "it is not known how late it will be"


def test_of_several_requests_the_first_one_that_is_served_tells_how_long(waits: Waits, clock: Clock) -> None:
    with waits.one(for_start=True):
        clock.now += 30
        with waits.one(for_start=True):
            clock.now += 30
        assert waits.present == 1
        clock.now += 500
    assert waits.present == 0
    assert wait(waits, clock, 10) == 50


def test_clients_that_give_up_and_come_again_wait_for_one_start(waits: Waits, clock: Clock) -> None:
    wait(waits, clock, 60)
    wait(waits, clock, 20, served=False)
    clock.now += 10
    assert wait(waits, clock, 20) == 10, "50 of 60 seconds are over"


def test_a_start_that_nobody_waits_for_any_more_teaches_nothing(waits: Waits, clock: Clock) -> None:
    wait(waits, clock, 60)
    wait(waits, clock, 20, served=False)
    clock.now += 86400
    wait(waits, clock, 60)
    assert wait(waits, clock, 10) == 50


def test_a_start_that_nobody_saw_the_end_of_teaches_nothing(waits: Waits, clock: Clock) -> None:
    """All clients gave up, the pods came, and later one request waits for a pod that has a pause."""
    wait(waits, clock, 60)
    wait(waits, clock, 20, served=False)
    clock.now += 50
    wait(waits, clock, 2, for_start=False)
    assert wait(waits, clock, 10) == 50


def test_a_short_pause_of_pods_is_no_start(waits: Waits, clock: Clock) -> None:
    wait(waits, clock, 60)
    assert wait(waits, clock, 1, for_start=False) is None
    assert wait(waits, clock, 10) == 50


async def test_a_client_that_finds_the_queue_full_is_told_when_to_come_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "Waits", lambda forget: Waits(forget, clock=clock))
    async with fleet("p", "d", rules={"max_queued": 1}) as world:
        assert await told_during_a_start(world, clock, 40) == "5", "nothing is known yet"
        assert await told_during_a_start(world, clock, 10) == "30"


async def told_during_a_start(world: Fleet, clock: Clock, seconds: float) -> str:
    world.observe("p", "d")
    asked = asyncio.create_task(world.post())
    await queued(world, 1)
    clock.now += seconds
    status, headers, _ = await world.post()
    assert status == 503
    world.observe()
    assert (await asked)[0] == 200
    return str(headers["Retry-After"])
