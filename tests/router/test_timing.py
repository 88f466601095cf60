"""Latencies of streamed answers, from a client's request to the router's histograms."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from pdinference.api import latencies
from pdinference.api.latencies import FIRST_TOKEN_BOUNDS, OUTPUT_TOKEN_BOUNDS
from tests.router.engines import Fleet, abort_after_headers, events, fleet, status
from tests.router.model import Model, asking
from tests.waiting import until

CHAT = "/v1/chat/completions"
USAGE = (
    '{"choices":[],"usage":{"prompt_tokens":2,"total_tokens":5,"completion_tokens":3},"system_fingerprint":"vllm-1"}'
)
CHUNKS = ('{"choices":[{"text":"a"}]}', '{"choices":[{"text":"bc","finish_reason":"stop"}]}')


def event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


async def stream(request: web.Request) -> web.StreamResponse:
    """Three tokens in two events, as vLLM writes them, with the report if it was asked for."""
    body = json.loads(await request.read())
    asked = (body.get("stream_options") or {}).get("include_usage")
    response = await events(request)
    for data in (*CHUNKS, *((USAGE,) if asked else ()), "[DONE]"):
        await response.write(event(data))
        await asyncio.sleep(0.02)
    return response


async def counted(world: Fleet) -> tuple[float, float, float, float]:
    """Streams with a first token, with a time per output token, abandoned, failed."""
    histograms = (latencies.FIRST_TOKEN, latencies.OUTPUT_TOKEN, latencies.ABANDONED)
    first, token, abandoned = [await world.metric(f"{name}_count") for name in histograms]
    return first, token, abandoned, await world.metric(latencies.FAILED)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"continuous_usage_stats": True}])
async def test_the_report_is_asked_for_and_taken_out(options: Any) -> None:
    async with fleet("p", "d") as world:
        world["d"].fault = stream
        more = {} if options is None else {"stream_options": options}
        _, _, body = await world.post({"stream": True, **more})
        assert world["d"].bodies[0]["stream_options"] == {"include_usage": True}
        assert "stream_options" not in world["p"].bodies[0]
        assert await counted(world) == (1, 1, 0, 0)
        seconds = await world.metric(f"{latencies.OUTPUT_TOKEN}_sum")
    last = CHUNKS[1].removesuffix("}") + ',"system_fingerprint":"vllm-1"}'
    assert body == event(CHUNKS[0]) + event(last) + event("[DONE]"), "the fingerprint is that of the report"
    assert 0.01 < seconds < 0.2, "three tokens, not two events"


async def test_a_client_that_asks_for_the_report_gets_it() -> None:
    async with fleet("d", rules={"handover": "none"}) as world:
        world["d"].fault = stream
        _, _, body = await world.post({"stream": True, "stream_options": {"include_usage": True}})
        assert await counted(world) == (1, 1, 0, 0)
    assert body == b"".join(map(event, (*CHUNKS, USAGE, "[DONE]")))


async def test_options_that_vllm_refuses_are_left_to_it() -> None:
    async with fleet("d", rules={"handover": "none"}) as world:
        await world.post({"stream": True, "stream_options": 5})
        assert world["d"].bodies[0]["stream_options"] == 5


@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
async def test_with_migration_the_client_gets_what_it_asked_for(path: str) -> None:
    async with fleet("p", "d", rules={"migration": True}) as world:
        world["d"].fault = lambda request: answer(request, path)
        _, _, body = await world.post(asking(path), path=path)
        assert await counted(world) == (1, 1, 0, 0)
    assert b'"usage"' not in body
    assert body.count(b'"finish_reason":"length"') == 1
    assert body.endswith(b"data: [DONE]\n\n")


async def answer(request: web.Request, path: str) -> web.StreamResponse:
    response = await events(request)
    await response.write(Model.stream(path, json.loads(await request.read())))
    return response


async def test_answers_that_are_no_stream_of_one_choice_do_not_count() -> None:
    async with fleet("d", rules={"handover": "none"}) as world:
        await world.post()
        await world.post({"stream": True, "n": 2})
        await world.post({"stream": True, "input": "x"}, path="/v1/responses")
        world["d"].fault = status(400)
        await world.post({"stream": True})
        assert await counted(world) == (0, 0, 0, 0)


async def test_a_failure_before_the_first_token_counts() -> None:
    async with fleet("d", rules={"handover": "none"}) as world:
        world["d"].fault = abort_after_headers
        assert (await world.post({"stream": True}))[0] == 502
        assert await counted(world) == (0, 0, 0, 1)


async def test_a_client_that_leaves_before_the_first_token_counts_with_its_time() -> None:
    async with fleet("d", rules={"handover": "none"}) as world:
        world["d"].go_on.clear()
        waiting = asyncio.create_task(world.post({"stream": True}))
        await world["d"].arrived.wait()
        waiting.cancel()

        async def abandoned() -> bool:
            return await counted(world) == (0, 0, 1, 0)

        await until(abandoned, "it is counted")


@pytest.mark.parametrize("bounds", [FIRST_TOKEN_BOUNDS, OUTPUT_TOKEN_BOUNDS])
def test_buckets_are_at_most_a_tenth_wide_and_few(bounds: tuple[float, ...]) -> None:
    fine = bounds[:-3]
    assert all(upper <= lower * 1.1000001 for lower, upper in pairwise(fine))
    assert list(bounds) == sorted(set(bounds))
    assert len(bounds) <= 125
