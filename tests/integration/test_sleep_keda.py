"""Scale to zero where KEDA scales: it starts whatever it has a ScaledObject of, and that has no pods."""

import asyncio
from pathlib import Path

import aiohttp
from aiohttp import web

from pdinference.activator.gate import Gate
from pdinference.api.names import ENGINE_ROLES
from pdinference.cluster.kinds import SCALED_OBJECT
from tests.integration.front import in_front
from tests.integration.keda import Keda
from tests.integration.operators import Operators
from tests.integration.sleeping import SLEEPY, Router, activator, awake, counts, is_ready, tell
from tests.integration.test_sources import WITH_KEDA, keda
from tests.integration.world import World, until

__all__ = ["keda"]  # a fixture

BY_KEDA = {**SLEEPY, "autoscaling": {**SLEEPY["autoscaling"], "source": "KEDA"}}


async def test_no_pod_goes_before_keda_has_let_go_of_it(
    world: World, operators: Operators, keda: Keda, tmp_path: Path
) -> None:
    async def kill_at_deletion(request: web.Request) -> None:
        if request.method == "DELETE" and SCALED_OBJECT.plural in request.path:
            operators.kill_all()
            raise web.HTTPServiceUnavailable

    async def scaled() -> int:
        return len((await world.api.get(SCALED_OBJECT.path(world.namespace)))["items"])

    async def both_scaled() -> bool:
        return await scaled() == 2

    router = Router()
    async with (
        in_front(world.cluster.kubeconfig, tmp_path, kill_at_deletion) as kubeconfig,
        activator(router, Gate(limit=10, max_wait=60)) as url,
        aiohttp.ClientSession() as client,
    ):
        operator = await operators.start(*WITH_KEDA, kubeconfig=kubeconfig)
        await world.apply(**BY_KEDA)
        revision = await world.serving()
        await until(both_scaled, "KEDA is to scale P and D")
        for role in ENGINE_ROLES:
            await keda.hold(role)
        await tell(world, revision)

        async def killed() -> bool:
            return not operator.running

        await until(killed, "the operator is killed before its first deletion of a ScaledObject")
        assert await counts(world, revision) == [1, 1]

        await operators.start(*WITH_KEDA)

        async def waits() -> bool:
            return (await world.condition("Autoscaling")).get("reason") == "StillThere"

        await until(waits, "it waits for KEDA")
        for role in ENGINE_ROLES:
            assert await counts(world, revision) == [1, 1]
            await keda.let_go(role)
        await is_ready(world, "Asleep")
        assert await counts(world, revision) == [0, 0]
        assert await scaled() == 0

        router.pair = False
        answer = asyncio.create_task(client.post(f"{url}/v1/completions", json={"prompt": "Hello"}))
        await awake(world, revision)
        await until(both_scaled, "KEDA is to scale P and D again")
        router.pair = True
        assert (await answer).status == 200
