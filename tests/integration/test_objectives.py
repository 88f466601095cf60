"""The condition ObjectivesMet on a real API server, with a real router's metrics in place of its pod."""

import asyncio
from datetime import UTC, datetime, timedelta

from aiohttp import web
from prometheus_client import generate_latest

from pdinference.api.names import ROUTER_STATE_PORT
from pdinference.cluster.kinds import RESOURCE
from pdinference.router.record import Metrics
from tests.http_server import served
from tests.integration.calm import QUIET_S, calm
from tests.integration.operators import Operators
from tests.integration.sleeping import ADDRESS, tell
from tests.integration.test_kv_transfer import reported
from tests.integration.world import World
from tests.waiting import until

OBJECTIVES = {"ttft": "500ms", "tpot": "30ms", "percentile": 90}

_READING_S = 35.0
"""Longer than the time between two readings of a router pod."""


class Router:
    """A router that answers some requests whenever it is read, as under a constant load."""

    def __init__(self) -> None:
        self.metrics, self.first_token = Metrics(), 0.2

    async def read(self, _request: web.Request) -> web.Response:
        for _ in range(100):
            self.metrics.latencies.first_token.observe(self.first_token)
            self.metrics.latencies.output_token.observe(0.01)
            self.metrics.stages.labels("prefill").observe(self.first_token)
        return web.Response(body=generate_latest(self.metrics.registry))


async def test_objectives_are_met_and_missed_and_met_again(world: World, operators: Operators) -> None:
    router = Router()
    async with served([web.get("/metrics", router.read)], host=ADDRESS, port=ROUTER_STATE_PORT):
        operator = await operators.start()
        await world.apply(objectives=OBJECTIVES)
        await tell(world, await world.serving())

        await world.says("ObjectivesMet", "True Met: Of ")
        assert (await world.status())["objectives"]["ttft"]["keptPercent"] == 100
        await calm(world, QUIET_S)
        await expect_no_write(world)

        router.first_token = 0.9
        await world.says("ObjectivesMet", "False Missed: Of ")
        await until(lambda: reported(world, "ObjectivesMissed"), "there is an Event")

        # The pause between two writes has passed, and so have the late requests of the window.
        operator.kill()
        router.first_token = 0.2
        past = (datetime.now(UTC) - timedelta(minutes=11)).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = RESOURCE.path(world.namespace, "llama") + "/status"
        await world.api.merge(path, {"status": {"objectives": {"observedTime": past}}})
        await operators.start()
        await world.says("ObjectivesMet", "True Met: Of ")
        await until(lambda: reported(world, "ObjectivesMet"), "there is an Event")
        await calm(world, QUIET_S)
        await expect_no_write(world)


async def expect_no_write(world: World) -> None:
    """Expect no write while the operator reads the router pod again, under the same load."""
    mark = world.audit_mark()
    await asyncio.sleep(_READING_S)
    assert not world.writes(mark)
