"""Scale to zero with KEDA: its ScaledObject stays, because only the operator starts pods."""

import asyncio

import aiohttp

from pdinference.activator.gate import Gate
from pdinference.api.names import ENGINE_ROLES
from pdinference.cluster.kinds import SCALED_OBJECT, SCALER
from tests.integration.keda import WITH_KEDA, Keda
from tests.integration.operators import Operators
from tests.integration.recommendations import recommend
from tests.integration.sleeping import SLEEPY, Router, activator, awake, counts, is_ready, tell
from tests.integration.world import World, until

BY_KEDA = {**SLEEPY, "autoscaling": {**SLEEPY["autoscaling"], "source": "KEDA"}}


async def test_asleep_keda_starts_no_pod_and_a_request_does(world: World, operators: Operators, keda: Keda) -> None:
    async def scaled() -> set[str]:
        return {o["metadata"]["uid"] for o in (await world.api.get(SCALED_OBJECT.path(world.namespace)))["items"]}

    async def both_scaled() -> bool:
        return len(await scaled()) == len(ENGINE_ROLES)

    async def recommended_one() -> bool:
        found = await world.get(SCALER, "llama-decode") or {}
        return bool(found["spec"]["replicas"] == 1)

    router = Router()
    async with activator(router, Gate(limit=10, max_wait=60)) as url, aiohttp.ClientSession() as client:
        await operators.start(*WITH_KEDA)
        await world.apply(**BY_KEDA)
        revision = await world.serving()
        await until(both_scaled, "KEDA is to scale P and D")
        before = await scaled()
        await tell(world, revision)
        await is_ready(world, "Asleep")
        await recommend(world, 2)  # as KEDA does when it sees a load
        await until(recommended_one, "the recommendation is the minimum again")
        assert await counts(world, revision) == [0, 0]

        router.pair = False
        answer = asyncio.create_task(client.post(f"{url}/v1/completions", json={"prompt": "Hello"}))
        await awake(world, revision)
        router.pair = True
        assert (await answer).status == 200
        assert await scaled() == before
