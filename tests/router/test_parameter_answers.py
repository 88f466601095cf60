"""P pods answer whole requests while D pods have many (`spec.router.parameterAnswers`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pdinference.api.names import METRIC_HANDED_OVER
from pdinference.router.choice import FEW
from tests.router.engines import EVENTS, PARAMS, Fleet, abort, fleet

SHARED = {"parameter_answers": "WhenDecodeIsBusy"}
STREAM = {"stream": True}


async def sent_to_d(world: Fleet, requests: int) -> None:
    """Wait until D has got so many requests."""
    while len(world["d"].bodies) < requests:
        world["d"].arrived.clear()
        await world["d"].arrived.wait()


@asynccontextmanager
async def busy(world: Fleet, streams: int = FEW) -> AsyncIterator[None]:
    """D has streams that do not end."""
    world["d"].go_on.clear()
    running = [asyncio.create_task(world.post(STREAM)) for _ in range(streams)]
    try:
        await sent_to_d(world, streams)
        yield
    finally:
        world["d"].go_on.set()
        answers = await asyncio.gather(*running)
        assert {(status, body) for status, _, body in answers} == {(200, b"".join(EVENTS))}


async def test_p_answers_a_whole_request_while_d_has_many() -> None:
    async with fleet("p", "d", rules=SHARED) as world, busy(world):
        before = await world.metric(METRIC_HANDED_OVER)
        status, headers, body = await world.post(STREAM)
        assert (status, body) == (200, b"".join(EVENTS))
        assert headers["X-PDInference-Prefill"] == "parameter"
        assert world["p"].bodies[-1] == {"prompt": "one two", "max_tokens": 9, "stream": True} | _options(world)
        assert len(world["d"].bodies) == FEW
        assert await world.metric("pdinference_router_answers_of_parameter_total") == 1
        assert await world.metric(METRIC_HANDED_OVER) == before
        assert await world.metric("pdinference_router_prefill_fallbacks_total") == 0


def _options(world: Fleet) -> dict[str, object]:
    """Those that the router adds for its own measurements, as D gets them."""
    return {"stream_options": world["d"].bodies[-1]["stream_options"]}


@pytest.mark.parametrize(("rules", "streams"), [({}, FEW), (SHARED, FEW - 1)])
async def test_d_answers_otherwise(rules: dict[str, str], streams: int) -> None:
    async with fleet("p", "d", rules=rules) as world, busy(world, streams):
        world["d"].go_on.set()
        assert (await world.post(STREAM))[0] == 200
        assert world["d"].bodies[-1]["kv_transfer_params"] == PARAMS
        assert await world.metric("pdinference_router_answers_of_parameter_total") == 0


async def test_the_requests_of_other_router_pods_count_as_its_own() -> None:
    async with fleet("p", "d", rules=SHARED) as world, busy(world, FEW // 2):
        world.pods.routers = 2
        assert (await world.post(STREAM))[0] == 200
        assert await world.metric("pdinference_router_answers_of_parameter_total") == 1


async def test_a_request_that_cannot_be_split_stays_with_d() -> None:
    """Several answers of one prompt: D has them, as without the setting."""
    async with fleet("p", "d", rules=SHARED) as world, busy(world):
        world["d"].go_on.set()
        prompts = len(world["p"].bodies)
        assert (await world.post({**STREAM, "n": 2}))[0] == 200
        assert len(world["p"].bodies) == prompts


async def test_d_answers_where_p_fails() -> None:
    async with fleet("p", "d", rules=SHARED) as world, busy(world):
        world["p"].fault = abort
        answer = asyncio.create_task(world.post(STREAM))
        await sent_to_d(world, FEW + 1)
        world["d"].go_on.set()
        assert (await answer)[0] == 200
        assert await world.metric("pdinference_router_answers_of_parameter_total") == 0
