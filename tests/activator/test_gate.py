"""Requests wait, bounded in number and time."""

import asyncio

import pytest

from pdinference.activator.gate import Gate, TurnedAwayError

pytestmark = pytest.mark.virtual_time


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def gate(clock: Clock, *, limit: int = 2, max_wait: float = 60) -> Gate:
    return Gate(limit=limit, max_wait=max_wait, clock=clock)


async def passing(gate: Gate) -> None:
    with gate.request() as until:
        await gate.passed(until)


async def waiting(gate: Gate, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(passing(gate)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def one_gives_up(gate: Gate, clock: Clock, *, after: float) -> None:
    (task,) = await waiting(gate, 1)
    clock.now += after
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_nobody_waits_at_an_open_gate() -> None:
    found = gate(Clock())
    found.set(opened=True)
    await asyncio.wait_for(passing(found), 1)
    assert found.held == 0


async def test_all_who_wait_pass_when_it_opens() -> None:
    found = gate(Clock())
    tasks = await waiting(found, 2)
    assert found.held == 2
    found.set(opened=True)
    await asyncio.wait_for(asyncio.gather(*tasks), 1)
    assert found.held == 0


async def test_more_than_the_limit_are_turned_away_at_once() -> None:
    found = gate(Clock())
    tasks = await waiting(found, 2)
    with pytest.raises(TurnedAwayError, match="2 requests") as refusal:
        await passing(found)
    assert refusal.value.status == 503
    found.set(opened=True)
    await asyncio.gather(*tasks)


async def test_who_has_waited_too_long_is_turned_away() -> None:
    found = gate(Clock(), max_wait=0.01)
    with pytest.raises(TurnedAwayError) as refusal:
        await passing(found)
    assert refusal.value.status == 504
    assert found.held == 0


async def test_who_goes_away_leaves_the_queue() -> None:
    found = gate(Clock())
    tasks = await waiting(found, 1)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert found.held == 0


async def test_nobody_waits_for_a_process_that_ends() -> None:
    found = gate(Clock())
    tasks = await waiting(found, 1)
    found.end()
    with pytest.raises(TurnedAwayError) as refusal:
        await asyncio.wait_for(tasks[0], 1)
    assert refusal.value.status == 503


async def test_nobody_begins_to_wait_at_a_process_that_ends() -> None:
    found = gate(Clock())
    found.set(opened=True)
    found.end()
    await passing(found)
    found.set(opened=False)
    with pytest.raises(TurnedAwayError) as refusal:
        await asyncio.wait_for(passing(found), 1)
    assert refusal.value.status == 503


async def test_idle_is_the_time_since_there_was_a_request() -> None:
    clock = Clock()
    found = gate(clock)
    clock.now += 5
    assert found.idle_seconds == 5
    with found.request():
        clock.now += 5
        assert found.idle_seconds == 0
    clock.now += 3
    assert found.idle_seconds == 3


async def test_nobody_could_ask_before_it_was_open_once() -> None:
    """Pods that take longer to start than they may be idle for would go the moment they are ready."""
    clock = Clock()
    found = gate(clock)
    clock.now += 1200
    found.set(opened=True)
    assert found.idle_seconds == 0
    clock.now += 5
    found.set(opened=False)
    found.set(opened=True)
    assert found.idle_seconds == 5


async def test_who_gave_up_counts_until_the_pods_may_be_expected_no_longer() -> None:
    clock = Clock()
    found = gate(clock, max_wait=60)
    await one_gives_up(found, clock, after=5)
    clock.now += 54
    assert found.idle_seconds == 0
    clock.now += 1
    assert found.idle_seconds == 55


async def test_who_gave_up_has_time_to_come_back_from_when_the_pods_are_there() -> None:
    clock = Clock()
    found = gate(clock, max_wait=60)
    await one_gives_up(found, clock, after=0)
    clock.now += 30
    found.set(opened=True)
    clock.now += 2
    assert found.idle_seconds == 2
    found.set(opened=False)
    found.set(opened=True)
    assert found.idle_seconds == 2, "who is answered is not waited for"


async def test_it_stays_ready_for_requests_once_it_was_open() -> None:
    found = gate(Clock())
    assert not found.latched
    found.set(opened=True)
    found.set(opened=False)
    assert found.latched
    assert (await waiting(found, 1))[0].done() is False
    found.end()
