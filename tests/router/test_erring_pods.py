"""A pod that answers with errors what others answer without gets requests last."""

import asyncio

import pytest

from tests.router.engines import Engine, Fleet, fleet, status
from tests.router.test_busy import Clock

ERROR = status(500)


async def sent(world: Fleet, number: int) -> None:
    """Requests one after the other, each of which is answered."""
    for _ in range(number):
        code, _, _ = await world.post()
        assert code == 200


def requests_of(engine: Engine) -> int:
    return len(engine.bodies)


@pytest.mark.parametrize(("bad", "good"), [("d1", "d2"), ("p1", "p2")])
async def test_it_gets_no_more_requests_after_three_in_a_row(bad: str, good: str) -> None:
    async with fleet("p1", "p2", "d1", "d2", clock=Clock()) as world:
        world[bad].fault = ERROR
        await sent(world, 12)
        assert requests_of(world[bad]) == 3
        assert requests_of(world[good]) == 12


async def test_it_is_tried_again_after_a_pause_that_grows_until_it_answers() -> None:
    clock = Clock()
    async with fleet("p", "d1", "d2", clock=clock) as world:
        world["d1"].fault = ERROR
        await sent(world, 6)
        for pause in (0.25, 0.5):
            clock.now += pause
            before = requests_of(world["d1"])
            await sent(world, 4)
            assert requests_of(world["d1"]) == before + 1
        world["d1"].fault = None
        clock.now += 1.0
        before = requests_of(world["d1"])
        await sent(world, 4)
        assert requests_of(world["d1"]) == before + 2


async def test_an_answer_between_the_errors_is_forgiveness() -> None:
    async with fleet("p", "d1", "d2", clock=Clock()) as world:
        for _ in range(3):
            world["d1"].fault = ERROR
            await sent(world, 2)
            world["d1"].fault = None
            await sent(world, 2)
        before = requests_of(world["d1"])
        await sent(world, 4)
        assert requests_of(world["d1"]) == before + 2


async def test_it_gets_requests_if_there_is_no_other_pod() -> None:
    async with fleet("p", "d1", "d2", clock=Clock()) as world:
        world["d1"].fault = ERROR
        await sent(world, 6)
        world["d1"].fault = None
        world.observe("d2")
        await sent(world, 2)
        assert requests_of(world["d1"]) == 5


async def test_requests_that_no_pod_answers_take_none_from_others() -> None:
    async with fleet("p", "d1", "d2", clock=Clock()) as world:
        world["d1"].fault = world["d2"].fault = ERROR
        for code, _, _ in await asyncio.gather(*(world.post() for _ in range(6))):
            assert code == 500
        world["d1"].fault = world["d2"].fault = None
        before = requests_of(world["d1"]), requests_of(world["d2"])
        await sent(world, 4)
        assert (requests_of(world["d1"]), requests_of(world["d2"])) == (before[0] + 2, before[1] + 2)


@pytest.mark.parametrize("rule", ["Serve", "Wait", "Fail"])
async def test_it_gets_prompts_if_the_others_have_no_link_to_a_d_pod(rule: str) -> None:
    """Engines that share a pod are linked to each other alone."""
    async with fleet("a/p", "a/d", "b/p", "b/d", clock=Clock(), rules={"when_no_prefill": rule}) as world:
        world["a/p"].fault = ERROR
        await sent(world, 6)
        world["a/p"].fault = None
        world.observe("b/d")
        before = requests_of(world["a/p"])
        async with asyncio.timeout(5.0):
            await sent(world, 1)
        assert requests_of(world["a/p"]) == before + 1


async def test_many_errors_at_once_are_one_sign() -> None:
    """The requests that it had when it was left out say nothing of the time after the pause."""
    clock = Clock()
    async with fleet("p", "d1", "d2", clock=clock) as world:
        world["d1"].fault = ERROR
        for code, _, _ in await asyncio.gather(*(world.post() for _ in range(30))):
            assert code == 200
        world["d1"].fault = None
        clock.now += 0.25
        before = requests_of(world["d1"])
        await sent(world, 4)
        assert requests_of(world["d1"]) == before + 2
