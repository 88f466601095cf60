"""The condition KVTransfer on a real API server, with a server of metrics in place of the router's pod."""

import asyncio

from aiohttp import web

from pdinference.api.names import METRIC_KV_PROMPT_TOKENS, METRIC_STAGES, METRIC_VERIFICATION, ROUTER_STATE_PORT
from pdinference.cluster.kinds import Kind
from tests.http_server import served
from tests.integration.calm import QUIET_S, calm
from tests.integration.operators import Operators
from tests.integration.sleeping import ADDRESS, tell
from tests.integration.world import World
from tests.waiting import until

_EVENT = Kind("Event", "events.k8s.io", "v1", "events")
_REST_S = 35.0
"""Longer than the time between two readings of a router pod."""


class Router:
    """The metrics of a router pod."""

    def __init__(self) -> None:
        self.state, self.from_parameter, self.by_decode, self.requests = "pending", 0, 0, 0

    async def metrics(self, _request: web.Request) -> web.Response:
        lines = (
            f'{METRIC_VERIFICATION}{{state="{self.state}"}} 1',
            f'{METRIC_KV_PROMPT_TOKENS}{{source="parameter"}} {self.from_parameter}',
            f'{METRIC_KV_PROMPT_TOKENS}{{source="decode"}} {self.by_decode}',
            f'{METRIC_STAGES}_count{{stage="first_token"}} {self.requests}',
        )
        return web.Response(text="\n".join(lines) + "\n")


async def test_the_kv_transfer_is_reported_and_rest_writes_nothing(world: World, operators: Operators) -> None:
    router = Router()
    async with served([web.get("/metrics", router.metrics)], host=ADDRESS, port=ROUTER_STATE_PORT):
        operator = await operators.start()
        await world.apply()
        await tell(world, await world.serving())
        await world.says("KVTransfer", "Unknown NoRequestsYet: ", "pending")
        router.state = "verified"
        await world.says("KVTransfer", "True Verified: ")
        router.by_decode, router.requests = 5000, 10
        await world.says("KVTransfer", "False ComputedByDecode: ", "D computed 100 %")
        assert (await world.status())["transfer"]["byDecodePercent"] == 100
        router.state = "wrong_answer"
        await world.says("KVTransfer", "False WrongAnswers: ", "docs/runbooks.md#wrong-answers")
        await until(lambda: reported(world, "KVTransferWrongAnswers"), "there is an Event")
        await expect_rest(world)

        before = (await world.status())["transfer"]
        operator.kill()
        mark = world.audit_mark()
        second = await operators.start()
        await second.until_looked()
        await expect_rest(world)
        assert not world.writes(mark)
        assert (await world.status())["transfer"] == before


async def reported(world: World, reason: str) -> bool:
    events = (await world.api.get(_EVENT.path(world.namespace)))["items"]
    return reason in {event["reason"] for event in events}


async def expect_rest(world: World) -> None:
    """Expect no request of the operator while it reads the router pod again. A watch that ends may begin again."""
    await calm(world, QUIET_S)
    mark = world.audit_mark()
    await asyncio.sleep(_REST_S)
    assert {key: count for key, count in world.requests(mark).items() if key[0] != "watch" or count > 1} == {}
