"""Scale to zero on a real API server, with its HPA controller, and a router in place of the router's pod."""

import asyncio
from typing import Any

from pdinference.api.names import Role
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT, Kind
from tests.integration.calm import QUIET_S, calm
from tests.integration.keda import WITH_KEDA, install_keda
from tests.integration.operators import Operators
from tests.integration.scale_target import recommend, recommended
from tests.integration.sleeping import SLEEPY, awake, counts, is_ready, router, tell
from tests.integration.world import World
from tests.waiting import until

REST_S = 5.0
ROLES = ["llama-decode", "llama-parameter"]


def sleepy(seconds: int, **autoscaling: Any) -> dict[str, Any]:
    return {**SLEEPY, "autoscaling": {"scaleToZero": {"afterSeconds": seconds}, **autoscaling}}


async def test_roles_sleep_and_a_request_wakes_them(world: World, operators: Operators) -> None:
    await install_keda(world)
    async with router() as front:

        async def request_wakes() -> None:
            front.observe("p", "d")
            answer = asyncio.create_task(front.post())
            await awake(world, revision)
            assert not answer.done()
            await world.make_ready(revision)
            front.observe()
            assert (await answer)[0] == 200
            await is_ready(world, "Serving")

        operator = await operators.start(*WITH_KEDA)
        await world.apply(**sleepy(10))
        revision = await world.serving()
        await tell(world, revision)
        await expect_sleep(world, revision, AUTOSCALER)
        await rests(world)
        operator.kill()
        second = await operators.start(*WITH_KEDA)
        await request_wakes()

        await world.apply(**sleepy(3600))
        await world.settled()
        await rests(world)
        assert second.stop() == 0
        mark = world.audit_mark()
        third = await operators.start(*WITH_KEDA)
        await third.until_looked()
        assert not world.writes(mark), "it knew whether anybody asks before it looked"

        await world.apply(**sleepy(10, source="KEDA"))
        await expect_sleep(world, revision, SCALED_OBJECT)
        await request_wakes()
        assert (await world.status())["revision"] == revision


async def expect_sleep(world: World, revision: str, scalers: Kind) -> None:
    """What recommends counts stays as it is, and starts no pod."""
    await is_ready(world, "Asleep")
    assert await counts(world, revision) == [0, 0]

    async def gone() -> bool:
        return not await world.pods(Role.PARAMETER) and not await world.pods(Role.DECODE)

    await until(gone, "no P and no D pod is left")

    async def both_scaled() -> bool:
        return sorted(await uids(world, scalers)) == ROLES

    await until(both_scaled, f"there are {scalers.plural} of both roles")
    before = await uids(world, scalers)
    await recommend(world, 2)  # as KEDA does when it sees a load

    async def back() -> bool:
        return await recommended(world) == 1

    await until(back, "the recommendation is the minimum again")
    assert await counts(world, revision) == [0, 0]
    assert await uids(world, scalers) == before


async def uids(world: World, kind: Kind) -> dict[str, str]:
    found = (await world.api.get(kind.path(world.namespace)))["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in found}


async def rests(world: World) -> None:
    """Expect no request of the operator for some looks of the HPA controller, once it was quiet.

    The HPA controller looks every second and writes what it finds; that is no reason to write or to read anything.
    """
    await calm(world, QUIET_S)
    mark = world.audit_mark()
    await asyncio.sleep(REST_S)
    assert world.requests(mark) == {}
