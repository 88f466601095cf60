"""Scale to zero on a real API server, with its HPA controller, and a real activator in place of the router's pod."""

import asyncio

import aiohttp

from pdinference.activator.gate import Gate
from pdinference.api.names import Role
from tests.integration.calm import QUIET_S, calm
from tests.integration.operators import Operators
from tests.integration.sleeping import SLEEPY, Router, activator, awake, counts, hpas, is_ready, tell
from tests.integration.world import World, until

REST_S = 10.0


async def test_a_pair_sleeps_and_a_request_wakes_it(world: World, operators: Operators) -> None:
    router = Router()
    gate = Gate(limit=10, max_wait=60)
    async with activator(router, gate) as url, aiohttp.ClientSession() as client:
        operator = await operators.start()
        await world.apply(**SLEEPY)
        revision = await world.serving()
        await tell(world, revision)
        await is_ready(world, "Asleep")
        assert await counts(world, revision) == [0, 0]

        async def gone() -> bool:
            return not await world.pods(Role.PARAMETER) and not await world.pods(Role.DECODE)

        await until(gone, "no P and no D pod is left")
        assert await hpas(world) == ["llama-decode", "llama-parameter"], "what recommends counts starts no pod"

        operator.kill()
        second = await operators.start()
        router.pair = False
        answer = asyncio.create_task(client.post(f"{url}/v1/completions", json={"prompt": "Hello"}))
        await awake(world, revision)
        assert not answer.done()
        await world.make_ready(revision)
        router.pair = True
        assert (await answer).status == 200
        await is_ready(world, "Serving")
        assert (await world.status())["revision"] == revision

        wakeful = {**SLEEPY, "autoscaling": {"scaleToZero": {"afterSeconds": 3600}}}
        await world.apply(**wakeful)
        await world.settled()
        assert second.stop() == 0
        mark = world.audit_mark()
        third = await operators.start()
        await third.until_looked()
        assert not world.writes(mark), "it knew whether anybody asks before it looked"


async def test_an_autoscaled_and_a_sleeping_pair_at_rest_cost_no_request(world: World, operators: Operators) -> None:
    """The HPA controller looks every 2 s and writes what it finds; that is no reason to write or to read anything."""
    async with activator(Router(), Gate(limit=10, max_wait=60)):
        operator = await operators.start()
        awake_for_long = {**SLEEPY, "autoscaling": {"scaleToZero": {"afterSeconds": 3600}}}
        await world.apply(**awake_for_long)
        revision = await world.serving()
        await tell(world, revision)
        await is_ready(world, "Serving")
        await rests(world)

        await world.apply(**SLEEPY)
        await is_ready(world, "Asleep")
        assert await counts(world, revision) == [0, 0]
        await rests(world)
        assert operator.stop() == 0


async def rests(world: World) -> None:
    """Expect no request of the operator for some looks of the HPA controller, once it was quiet."""
    await calm(world, QUIET_S)
    mark = world.audit_mark()
    await asyncio.sleep(REST_S)
    assert world.requests(mark) == {}
