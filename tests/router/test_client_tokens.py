"""Tokens by client: each answer once, whatever happened to it, and a limit of tokens a minute."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pdinference.router.keys import KeyLimitError, KeyLimits, Keys
from tests.router.engines import Fleet, events, fleet, status
from tests.router.model import CHAT, COMPLETIONS, LENGTH, Model, asking
from tests.router.test_keys import OLD, OTHER, bearer, locked, mounted
from tests.waiting import until

PROMPT = 3
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}


async def counted(world: Fleet, client: str = "") -> tuple[float, float, float, float]:
    """Tokens of prompts, those of them that were cached, tokens of answers, and answers that are not all known."""
    tokens = [
        await world.metric(f'pdinference_router_client_tokens_total{{client="{client}",kind="{kind}"}}')
        for kind in ("prompt", "cached", "answer")
    ]
    name = f'pdinference_router_client_unreported_answers_total{{client="{client}"}}'
    return (*tokens, await world.metric(name))  # type: ignore[return-value]


def whole(**more: Any) -> Any:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"choices": [], "usage": USAGE} | more)

    return answer


async def test_whole_answers_count_what_vllm_reports() -> None:
    async with fleet("p", "d") as world:
        world["d"].fault = whole()
        await world.post()
        await world.post()
        assert await counted(world) == (200, 128, 14, 0)
        world["d"].fault = whole(usage=None)
        await world.post()
        assert await counted(world) == (200, 128, 14, 1)


async def test_embeddings_have_prompts_alone_and_tokenizers_compute_nothing() -> None:
    async with fleet("p", "d") as world:
        world["d"].fault = whole(usage={"prompt_tokens": 20, "total_tokens": 20})
        await world.post(path="/v1/embeddings")
        assert await counted(world) == (20, 0, 0, 0)
        world["d"].fault = whole(usage=None, input_tokens=20, tokens=[1] * 20)
        for path in ("/tokenize", "/detokenize", "/v1/messages/count_tokens"):
            await world.post(path=path)
        assert await counted(world) == (20, 0, 0, 0)


async def test_what_pods_answer_with_errors_counts_nothing_and_a_retry_counts_once() -> None:
    async with fleet("p", "d1", "d2", rules={"policy": "round_robin"}) as world:
        world["d1"].fault = status(500)
        world["d2"].fault = whole()
        await world.post()
        await world.post()
        assert await counted(world) == (200, 128, 14, 0)
        world["d2"].fault = status(400)
        await world.post()
        assert await counted(world) == (200, 128, 14, 0)


@pytest.mark.parametrize("more", [{}, {"n": 2}, {"stream_options": {"include_usage": True}}])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_streams_count_their_report_also_those_of_several_answers(path: str, more: dict[str, Any]) -> None:
    async with fleet("p", "d") as world:
        world["d"].fault = Model()
        async with world.client.post(world.url + path, json=asking(path, **more)) as answer:
            body = await answer.read()
        assert (b'"usage"' in body) is ("stream_options" in more)
        assert body.endswith(b"data: [DONE]\n\n")
        assert await counted(world) == (PROMPT, 0, LENGTH, 0)


async def test_a_stream_of_responses_has_its_report_at_the_end() -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = await events(request)
        for kind, more in (("created", {}), ("completed", {"usage": {"input_tokens": 8, "output_tokens": 5}})):
            data = json.dumps({"type": f"response.{kind}", "response": {"id": "r", **more}})
            await response.write(f"event: response.{kind}\ndata: {data}\n\n".encode())
        return response

    async with fleet("d", rules={"handover": "none"}) as world:
        world["d"].fault = stream
        await world.post({"stream": True, "input": "x"}, path="/v1/responses")
        assert await counted(world) == (8, 0, 5, 0)


async def test_a_stream_that_several_pods_answered_counts_once() -> None:
    async with fleet("p", "d1", "d2", rules={"migration": True, "policy": "round_robin"}) as world:
        world["d1"].fault, world["d2"].fault = Model(700), Model()
        await world.post(asking(COMPLETIONS))
        assert await world.metric("pdinference_router_migrations_total") == 1
        assert await counted(world) == (PROMPT, 0, LENGTH, 0)


@pytest.mark.parametrize(("migration", "unknown"), [(True, 0), (False, 1)])
async def test_a_stream_that_its_client_left_counts_what_has_come_where_that_is_known(
    migration: bool, unknown: int
) -> None:
    half = LENGTH // 2

    async def stalls(request: web.Request) -> web.StreamResponse:
        response = await events(request)
        data = Model.stream(COMPLETIONS, json.loads(await request.read())).split(b"\n\n")
        await response.write(b"".join(event + b"\n\n" for event in data[:half]))
        await asyncio.Event().wait()
        raise AssertionError

    async with fleet("p", "d", rules={"migration": migration}) as world:
        world["d"].fault = stalls
        async with world.client.post(world.url + COMPLETIONS, json=asking(COMPLETIONS)) as answer:
            for _ in range(half):
                await answer.content.readuntil(b"\n\n")
            answer.close()

        async def ended() -> bool:
            return bool(await world.metric('pdinference_router_requests_total{client="",outcome="cancelled"'))

        await until(ended, "the end of the request")
        assert await counted(world) == ((PROMPT, 0, half, 0) if migration else (0, 0, 0, unknown))


async def test_a_stream_that_broke_counts_what_has_come() -> None:
    async with fleet("p", "d1", "d2", rules={"migration": True, "policy": "round_robin"}) as world:
        world["d1"].fault, world["d2"].fault = Model(700), status(400)
        with pytest.raises(aiohttp.ClientPayloadError):
            await world.post(asking(COMPLETIONS))
        prompt, _, answer, unknown = await counted(world)
        assert (prompt, unknown) == (PROMPT, 0)
        assert 0 < answer < LENGTH


async def test_clients_are_told_apart_and_the_limit_of_one_holds_for_it_alone(tmp_path: Path) -> None:
    limits = {"a": KeyLimits(tokens_per_minute=60)}
    async with locked(mounted(tmp_path, a=OLD, b=OTHER), **limits) as world:
        world["d"].fault = whole()
        assert (await world.post(headers=bearer(OLD)))[0] == 200
        assert (await world.post(headers=bearer(OLD)))[0] == 200, "43 tokens are no 60: 64 were cached"
        code, headers, body = await world.post(headers=bearer(OLD))
        assert (code, body["error"]["type"]) == (429, "rate_limit_error")
        assert "60 tokens a minute" in body["error"]["message"]
        assert 1 <= int(headers["Retry-After"]) <= 28
        assert (await world.post(headers=bearer(OTHER)))[0] == 200
        assert await counted(world, "a") == (200, 128, 14, 0)
        assert await counted(world, "b") == (100, 64, 7, 0)


def test_a_long_answer_is_paid_back_at_the_rate_of_the_limit(tmp_path: Path) -> None:
    now = [0.0]
    keys = Keys(mounted(tmp_path, a=OLD), {"a": KeyLimits(tokens_per_minute=60)}, clock=lambda: now[0])

    def send() -> int:
        try:
            with keys.request("a"):
                return 0
        except KeyLimitError as error:
            return error.retry_after

    assert send() == 0
    keys.spent("a", 180)
    assert send() == 122  # until a token is there
    now[0] = 100.0
    keys.load()  # reading the Secret again forgets nothing
    assert send() == 22
    now[0] = 121.5
    assert send() == 0
    keys.spent("nobody", 5)
