"""Scale to zero on a real API server, with its HPA controller, and a real activator in place of the router's pod."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from pdinference.activator.gate import Gate
from pdinference.activator.run import Places, serving
from pdinference.api.names import ACTIVATOR_STATE_PORT, Role
from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT, POD, STATEFUL_SET
from tests.integration.conftest import Operators
from tests.integration.world import World, until

ADDRESS = "127.78.0.1"
SLEEPY: dict[str, Any] = {
    "parameter": {"autoscaling": {"maxReplicas": 2}},
    "decode": {"autoscaling": {"maxReplicas": 2}},
    "autoscaling": {"scaleToZero": {"afterSeconds": 10}},
}


class Router:
    """Plays vllm-router, behind the activator."""

    def __init__(self) -> None:
        self.pair = True

    async def readiness(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.pair else 503)

    async def answer(self, _request: web.Request) -> web.Response:
        return web.Response(text="answer") if self.pair else web.Response(status=503)


@asynccontextmanager
async def activator(router: Router) -> AsyncIterator[str]:
    """Where clients reach it."""
    app = web.Application()
    app.add_routes([web.get("/readiness", router.readiness), web.post("/v1/completions", router.answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, ADDRESS, 0).start()
    gate = Gate(limit=10, max_wait=60)
    try:
        places = Places(0, ACTIVATOR_STATE_PORT, runner.addresses[0][1], ADDRESS, ADDRESS)
        async with serving(places, gate, drain_seconds=1) as (port, _):
            yield f"http://{ADDRESS}:{port}"
    finally:
        await runner.cleanup()


async def counts(world: World, revision: str) -> list[int]:
    workloads = (STATEFUL_SET, f"llama-parameter-{revision}"), (DEPLOYMENT, f"llama-decode-{revision}")
    found = [await world.get(kind, name) or {} for kind, name in workloads]
    return [workload["spec"]["replicas"] for workload in found]


async def hpas(world: World) -> list[str]:
    found = await world.api.get(AUTOSCALER.path(world.namespace))
    return sorted(hpa["metadata"]["name"] for hpa in found["items"])


async def test_a_pair_sleeps_and_a_request_wakes_it(world: World, operators: Operators) -> None:
    router = Router()
    async with activator(router) as url, aiohttp.ClientSession() as client:
        operator = await operators.start()
        await world.apply(**SLEEPY)
        revision = await world.serving()
        (pod,) = await world.pods(Role.ROUTER, revision)
        path = POD.path(world.namespace, pod["metadata"]["name"]) + "/status"
        await world.api.merge(path, {"status": {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}})

        async def sleeps() -> bool:
            return bool((await world.condition("Ready"))["reason"] == "Asleep")

        await until(sleeps, "the pair sleeps")
        assert await counts(world, revision) == [0, 0]

        async def gone() -> bool:
            return not await world.pods(Role.PARAMETER) and not await world.pods(Role.DECODE)

        await until(gone, "no P and no D pod is left")

        assert not await hpas(world)

        operator.kill()
        await operators.start()
        router.pair = False
        answer = asyncio.create_task(client.post(f"{url}/v1/completions", json={"prompt": "Hello"}))

        async def wakes() -> bool:
            return await counts(world, revision) == [1, 1]

        await until(wakes, "the request has brought pods back")
        assert not answer.done()
        await world.make_ready(revision)
        router.pair = True
        assert (await answer).status == 200

        async def serves() -> bool:
            return bool((await world.condition("Ready"))["reason"] == "Serving")

        await until(serves, "the status says so")
        assert await hpas(world) == ["llama-decode", "llama-parameter"]
        assert (await world.status())["revision"] == revision
