"""A request that kills an engine kills no second one; a pod that is killed loses no request."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.router import engines
from tests.router.engines import EVENTS, Engine, Fleet, fleet
from tests.router.model import CHAT, Model, asking
from tests.waiting import until

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
POISON = "poison"
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
PATHS = pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages"])


def error(path: str) -> dict[str, Any]:
    """vLLM's error after its engine has died."""
    if path == "/v1/messages":
        return {"type": "error", "error": {"type": "InternalServerError", "message": DEAD}}
    return {"error": {"message": DEAD, "type": "InternalServerError", "param": None, "code": 500}}


class Mortal:
    """Plays vLLM whose engine dies of one request. Its API server says so to all requests.

    Args:
        engine: The pod.
        says: Whether it says so; or else the connections end, and /health does.
        answer: Answers other requests.
    """

    def __init__(
        self, engine: Engine, *, says: bool = True, answer: Callable[[web.Request], Awaitable[Any]] | None = None
    ) -> None:
        self.engine = engine
        self.says = says
        self.answer = answer or engine.answer
        self.died = asyncio.Event()
        engine.fault = self

    async def __call__(self, request: web.Request) -> Any:
        if POISON in (await request.read()).decode():
            self.died.set()
            self.engine.dead = not self.says
        if not self.died.is_set():
            answering = asyncio.ensure_future(self.answer(request))
            dying = asyncio.ensure_future(self.died.wait())
            await asyncio.wait((answering, dying), return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            if not self.died.is_set():
                return await answering
            answering.cancel()
        return await self.report(request)

    async def report(self, request: web.Request) -> web.StreamResponse:
        if not self.says:
            return await engines.abort(request)
        if not json.loads(await request.read()).get("stream"):
            return web.json_response(error(request.path), status=500)
        return await report(await engines.events(request), request.path)


async def report(response: web.StreamResponse, path: str) -> web.StreamResponse:
    """End a stream with vLLM's error."""
    name = b"event: error\n" if path == "/v1/messages" else b""
    await response.write(name + b"data: " + json.dumps(error(path)).encode() + b"\n\ndata: [DONE]\n\n")
    return response


def mortal(world: Fleet, *names: str, **how: Any) -> list[Mortal]:
    return [Mortal(world[name], **how) for name in names]


def body(text: str, path: str, **more: object) -> dict[str, object]:
    prompt = {"prompt": text} if path == "/v1/completions" else {"messages": [{"role": "user", "content": text}]}
    return {"max_tokens": 9, **prompt, **more}


async def ask(world: Fleet, text: str, path: str = "/v1/completions", **more: object) -> tuple[int, Any, Any]:
    sent = body(text, path, **more)
    async with world.client.post(world.url + path, json=sent) as answer:
        data = await answer.read()
        return answer.status, answer.headers, json.loads(data) if answer.content_type == "application/json" else data


@pytest.mark.parametrize("says", [True, False], ids=["in its answer", "in its health"])
@PATHS
@STREAMS
async def test_a_request_that_kills_an_engine_is_not_sent_to_a_second_one(path: str, stream: bool, says: bool) -> None:
    async with fleet("p", "d1", "d2", "d3") as world:
        pods = mortal(world, "d1", "d2", "d3", says=says)
        code, headers, found = await ask(world, POISON, path, stream=stream, n=2)
        assert sum(pod.died.is_set() for pod in pods) == 1
        assert (code, headers["X-Should-Retry"], "Retry-After" in headers) == (502, "false", False)
        assert "engines of pods died" in found["error"]["message"]
        assert await world.metric("pdinference_router_poison_requests_total") == 1
        assert await world.metric('pdinference_router_requests_total{client="",outcome="poison"') == 1
        assert (await ask(world, "good", path))[0] == 200


@STREAMS
async def test_a_request_that_kills_p_is_sent_to_no_other_p_and_to_no_d(stream: bool) -> None:
    async with fleet("p1", "p2", "d1", "d2") as world:
        pods = mortal(world, "p1", "p2", "d1", "d2")
        assert (await ask(world, POISON, stream=stream))[0] == 502
        assert sum(pod.died.is_set() for pod in pods) == 1


async def test_a_request_is_sent_on_if_the_pod_was_failing_before() -> None:
    async with fleet("p", "d1", "d2") as world:
        (first,) = mortal(world, "d1")
        first.died.set()
        world.observe("d2")
        assert (await ask(world, "good", n=2))[0] == 502, "the router knows of no failure"
        asked = asyncio.create_task(ask(world, "good", n=2))
        await until(lambda: count(world["d1"], 2), "the pod has the next request")
        world.observe()
        assert (await asked)[0] == 200


async def count(engine: Engine, number: int) -> bool:
    return len(engine.bodies) >= number


async def hold(world: Fleet, name: str, number: int, *, stream: bool = False) -> list[asyncio.Task[Any]]:
    """Requests that a pod has, and does not answer yet."""
    world[name].go_on.clear()
    asked = [asyncio.create_task(ask(world, f"good {one}", n=2, stream=stream)) for one in range(number)]
    await until(lambda: count(world[name], number), "the pod has the requests")
    return asked


def waits(engine: Engine) -> Callable[[web.Request], Awaitable[Any]]:
    async def answer(request: web.Request) -> Any:
        await engine.go_on.wait()
        return await engine.answer(request)

    return answer


@STREAMS
async def test_among_others_it_kills_one_more_and_the_others_are_answered(stream: bool) -> None:
    async with fleet("p", "d1", "d2", "d3", "d4") as world:
        names = ("d1", "d2", "d3", "d4")
        pods = [Mortal(world[name], answer=waits(world[name])) for name in names]
        world.observe(*names[1:])
        asked = await hold(world, "d1", 8, stream=stream)
        poison = asyncio.create_task(ask(world, POISON, n=2, stream=stream))
        await pods[0].died.wait()
        world.observe()
        codes = [code for code, _, _ in await asyncio.wait_for(asyncio.gather(*asked), 60)]
        assert codes == [200] * 8
        assert (await poison)[0] == 502
        assert sum(pod.died.is_set() for pod in pods) == 2


async def test_the_same_request_again_is_refused_after_two_deaths() -> None:
    async with fleet("p", "d1", "d2", "d3") as world:
        pods = mortal(world, "d1", "d2", "d3")
        assert [(await ask(world, POISON, n=2))[0] for _ in range(5)] == [502] * 5
        assert sum(pod.died.is_set() for pod in pods) == 2
        assert await world.metric("pdinference_router_poison_requests_total") == 5


async def test_a_pod_that_is_killed_loses_no_request() -> None:
    async with fleet("p", "d1", "d2") as world:
        world.observe("d2")
        world["d1"].fault = engines.hang
        asked = await hold(world, "d1", 20)
        world.observe()
        await world["d1"].stop()
        assert [code for code, _, _ in await asyncio.wait_for(asyncio.gather(*asked), 60)] == [200] * 20
        assert await world.metric("pdinference_router_poison_requests_total") == 0


@STREAMS
async def test_p_that_dies_because_d_was_killed_loses_no_request(stream: bool) -> None:
    """UCX ends P when a D that reads from it over TCP is killed. One request was at D, and one at P alone."""
    async with fleet("p1", "p2", "d1", "d2") as world:
        world.observe("p2", "d2")
        world["d1"].fault = engines.hang
        at_d = asyncio.create_task(ask(world, "good", stream=stream))
        await until(lambda: count(world["d1"], 1), "D has the first request")
        (parameter,) = mortal(world, "p1", answer=waits(world["p1"]))
        world["p1"].go_on.clear()
        at_p = asyncio.create_task(ask(world, "good", stream=stream))
        await until(lambda: count(world["p1"], 2), "P has the second request")
        world.observe("p2")
        await world["d1"].stop()
        await until(lambda: count(world["p1"], 3), "P has the first request again")
        world.observe()
        parameter.died.set()
        answers = await asyncio.wait_for(asyncio.gather(at_d, at_p), 60)
        assert [code for code, _, _ in answers] == [200, 200]
        assert await world.metric("pdinference_router_poison_requests_total") == 0


async def test_a_request_that_two_pods_die_of_without_a_word_gets_no_third() -> None:
    names = ("d1", "d2", "d3")
    async with fleet("p", *names) as world:

        def die(engine: Engine) -> Callable[[web.Request], Awaitable[Any]]:
            async def fault(_request: web.Request) -> Any:
                stopping.append(asyncio.create_task(engine.stop()))
                await asyncio.Event().wait()

            return fault

        stopping: list[asyncio.Task[None]] = []
        for name in names:
            world[name].fault = die(world[name])
        code, _, _ = await asyncio.wait_for(ask(world, POISON, n=2), 60)
        assert (code, len(stopping)) == (502, 2)
        await asyncio.gather(*stopping)


@PATHS
async def test_a_stream_whose_engine_dies_is_not_complete(path: str) -> None:
    """vLLM ends such a stream as if it were complete."""
    died = asyncio.Event()

    async def dies(request: web.Request) -> web.StreamResponse:
        response = await engines.events(request)
        await response.write(EVENTS[0])
        await died.wait()
        return await report(response, path)

    async with fleet("p", "d") as world:
        world["d"].fault = dies
        async with world.client.post(world.url + path, json=body("good", path, stream=True)) as answer:
            assert await answer.content.readuntil(b"\n\n") == EVENTS[0]
            died.set()
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        assert await world.metric('pdinference_router_requests_total{client="",outcome="cut"') == 1
        assert await world.metric('pdinference_router_pod_failures_total{reason="engine_died"') == 1


async def test_a_stream_that_kills_engines_moves_once() -> None:
    """It kills them after its first tokens."""

    async def dies(request: web.Request) -> web.StreamResponse:
        response = await engines.events(request)
        sent = Model.stream(request.path, json.loads(await request.read()))
        await response.write(sent[: sent.index(b"\n\n", 900) + 2])
        return await report(response, CHAT)

    names = ("d1", "d2", "d3", "d4")
    async with fleet("p", *names, rules={"migration": True}) as world:
        for name in names:
            world[name].fault = dies
        async with world.client.post(world.url + CHAT, json=asking(CHAT)) as answer:
            got = await answer.content.readuntil(b'"code":502')
        assert b"EngineCore" not in got
        assert sum(bool(world[name].bodies) for name in names) == 2
        assert b"".join(EVENTS) not in got
