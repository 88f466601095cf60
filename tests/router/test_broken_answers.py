"""Answers of pods that break HTTP at every byte, or are no chunks of vLLM: each request ends; none waits for ever."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.router.engines import EVENTS, PARAMS, Engine, Fleet, fleet
from tests.router.model import CHAT, COMPLETIONS, LENGTH, asking

SESSION = "X-Session-Id"
WHOLE = b'{"by":"d1"}'
PREFILLED = json.dumps({"choices": [], "kv_transfer_params": PARAMS}).encode()
STREAM = b"".join(EVENTS)
PATIENCE_S = 60


def chunked(parts: list[bytes], kind: bytes) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n%b0\r\n\r\n" % (kind, chunks)


def counted(body: bytes, kind: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


ANSWERS = {
    "whole, chunked": (False, chunked([WHOLE[:5], WHOLE[5:]], b"application/json")),
    "whole, counted": (False, counted(WHOLE, b"application/json")),
    "stream, chunked": (True, chunked(EVENTS, b"text/event-stream")),
    "stream, counted": (True, counted(STREAM, b"text/event-stream")),
}


def broken(answer: bytes) -> Iterator[tuple[bytes, ...]]:
    """The answer in two pieces, that end at each of its bytes, and where another byte or a wrong chunk follows."""
    for place in range(len(answer)):
        yield answer[:place], b""
        yield answer[:place], b"zz\r\n"
        if place % 9 == 0:
            yield answer[:place], b"\xff" + answer[place + 1 :]
            yield answer[:place], b"HTTP/1.1 500 Fault\r\n\r\n"


def sends(engine: Engine, pieces: tuple[bytes, ...]) -> None:
    """Send something in place of an answer, and close the connection."""

    async def fault(request: web.Request) -> web.Response:
        transport = request.transport
        assert transport is not None
        for piece in pieces:
            transport.write(piece)
            await asyncio.sleep(0)
        transport.close()
        return web.Response()

    engine.fault = fault


def session(world: Fleet, first: str) -> str:
    """A session whose requests go to a pod first."""
    choose = next(iter(world.settings.rules.choose.values())) if world.settings else None
    assert choose is not None

    class View:
        body, tokens = b"", 1

        def __init__(self, name: str) -> None:
            self.session = name

    role = world[first].role
    pods = [pod for pod in world.pods if pod.observed.role is role]
    return next(name for name in map(str, range(100)) if choose(pods, View(name)).observed.name == first)


async def ended(world: Fleet, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, bytes]:
    """Status, and what came until the end of the response."""
    got = b""
    async with asyncio.timeout(PATIENCE_S), world.client.post(world.url + COMPLETIONS, json=body, headers=headers) as a:
        try:
            while piece := await a.content.readany():
                got += piece
        except aiohttp.ClientPayloadError:
            assert b'"error"' in got
        return a.status, got


def renew(world: Fleet) -> None:
    for pod in world.pods:
        world.pods.worked(pod)


@pytest.mark.parametrize("kind", ANSWERS)
async def test_no_answer_that_breaks_off_hangs(kind: str) -> None:
    stream, answer = ANSWERS[kind]
    async with fleet("p", "d1", "d2", rules={"policy": "consistent_hash"}) as world:
        headers = {SESSION: session(world, "d1")}
        body = {"prompt": "a", "n": 2, "stream": stream}
        for pieces in broken(answer):
            sends(world["d1"], pieces)
            status, got = await ended(world, body, headers)
            assert status == 200, pieces
            if not pieces[1] and not stream:
                assert json.loads(got)["by"] == "d2", pieces
            if not pieces[1] and stream:
                assert got.endswith(b"data: [DONE]\n\n") or b'"error"' in got, pieces
            renew(world)


@pytest.mark.parametrize("frame", [b"x: y", b"transfer-encoding: gzip", b"transfer-encoding: identity"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_answer_that_ends_where_its_connection_does_is_another_ones_to_give(
    frame: bytes, stream: bool
) -> None:
    """It looks complete wherever it breaks off."""
    kind, body = (b"text/event-stream", EVENTS[0]) if stream else (b"application/json", WHOLE)
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n%b" % (kind, frame, body)
    async with fleet("p", "d1", "d2", rules={"policy": "consistent_hash"}) as world:
        headers = {SESSION: session(world, "d1")}
        sends(world["d1"], (answer,))
        status, got = await ended(world, {"prompt": "a", "n": 2, "stream": stream}, headers)
        assert status == 200
        assert got.endswith(b"data: [DONE]\n\n") if stream else json.loads(got)["by"] == "d2"
        assert await world.metric('pdinference_router_pod_failures_total{reason="unframed_answer"') == 1


async def test_another_p_computes_a_prompt_if_the_answer_breaks_off() -> None:
    answer = chunked([PREFILLED[:20], PREFILLED[20:]], b"application/json")
    async with fleet("p1", "p2", "d", rules={"policy": "consistent_hash"}) as world:
        headers = {SESSION: session(world, "p1")}
        for place in range(0, len(answer), 7):
            for rest in (b"", b"zz\r\n"):
                sends(world["p1"], (answer[:place], rest))
                async with asyncio.timeout(PATIENCE_S):
                    status, got, _ = await world.post(headers=headers)
                assert (status, got["X-PDInference-Prefill"]) == (200, "parameter"), place
                renew(world)


CHUNKS = [
    b'{"choices":5}',
    b'{"choices":[5]}',
    b'{"choices":{"a":1}}',
    b"[1]",
    b"5",
    b'"a"',
    b"{",
    b"\xff",
    b'{"choices":[{"delta":["a"]}]}',
    b'{"choices":[{"delta":5}]}',
    b'{"choices":[{"text":5}]}',
    b'{"choices":[{"token_ids":5}]}',
    b'{"choices":[{"token_ids":["a"]}]}',
    b'{"choices":[{"token_ids":[-1]}]}',
    b'{"choices":[{"token_ids":[1e999]}]}',
    b'{"choices":[{"finish_reason":[]}]}',
    b'{"prompt_token_ids":"abc"}',
    b'{"prompt_token_ids":{}}',
    b'{"id":[]}',
    b'{"usage":5}',
    b'{"error":5}',
    b'{"error":"a"}',
    b'{"error":{"message":5}}',
    b'{"error":{"message":"a","code":[]}}',
    b'{"choices":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"a":' + b"9" * 400 + b"}",
]
"""Data of events that are no chunks of vLLM, but for the last, which is one with a member that is not known."""


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("begun", [False, True])
async def test_a_chunk_that_is_none_ends_with_an_error_event(path: str, begun: bool) -> None:
    good = b'data: {"id":"a","choices":[{"index":0,"text":"x"}]}\n\n' if begun else b""
    async with fleet("p", "d", rules={"migration": True}) as world:
        for data in CHUNKS:
            sends(world["d"], (counted(good + b"data: " + data + b"\n\n", b"text/event-stream"),))
            body = asking(path, max_tokens=LENGTH)
            got = b""
            async with asyncio.timeout(PATIENCE_S), world.client.post(world.url + path, json=body) as answer:
                try:
                    while piece := await answer.content.readany():
                        got += piece
                except aiohttp.ClientPayloadError:
                    got += b" broke off"
            assert b'"error"' in got or data == CHUNKS[-1], data
            renew(world)
        assert await world.metric('pdinference_router_requests_total{client="",outcome="failed"') == 0
