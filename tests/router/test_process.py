"""The router as a process of its own: files, and memory under attack."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from tests.router.engines import PARAMS
from tests.router.process import Routing, routing
from tests.waiting import until

_FILES = 64
_STREAMS = 100
_MIB = 2**20
_BODY = 16 * _MIB
_HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def world() -> AsyncIterator[Routing]:
    async with routing() as found:
        async with found.client.post(f"{found.url}/v1/completions", json={"prompt": "a"}) as answer:
            assert answer.ok
        yield found


async def test_it_takes_as_many_files_as_the_container_allows() -> None:
    """Containers may begin with a limit of 1,024, and each stream takes two."""
    async with routing(files=_FILES) as world:
        world.decode.go_on.clear()

        async def asked() -> int:
            async with world.client.post(f"{world.url}/v1/completions", json={"prompt": "a"}) as answer:
                return answer.status

        asking = [asyncio.create_task(asked()) for _ in range(_STREAMS)]

        async def all_at_once() -> bool:
            return len(world.decode.raw) >= _STREAMS

        await until(all_at_once, f"D has {_STREAMS} requests", within=30)
        world.decode.go_on.set()
        assert set(await asyncio.gather(*asking)) == {200}


async def test_heads_that_are_not_complete_take_little_memory(world: Routing) -> None:
    """Before a key is checked."""
    before = world.memory()
    async with AsyncExitStack() as stack:
        writers = []  # from Python 3.11.5 on, a writer that is dropped closes its connection
        for _ in range(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writers.append(writer)
            stack.callback(writer.transport.abort)
            writer.write(_HEAD + b"".join(b"X%d: %b\r\n" % (one, b"a" * 8000) for one in range(64)))
        await asyncio.wait_for(reader.read(1), 20)  # the last one has an answer, so the others were read
        assert world.memory() - before < 64 * _MIB


def filled(begin: bytes, unit: bytes, end: bytes) -> bytes:
    """A body of the largest size."""
    return begin + b",".join([unit] * ((_BODY - len(begin + end)) // (len(unit) + 1))) + end


_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "options": (_COMPLETIONS, lambda: filled(b'{"prompt":"a","stream":true,"stream_options":{"x":[', b"[]", b"]}}")),
    "list": (_CHAT, lambda: filled(b'{"messages":[],"stream":true,"stream_options":[', b"[]", b"]}")),
    "objects": (_COMPLETIONS, lambda: filled(b'{"prompt":"a","stream":true,"logit_bias":[', b"{}", b"]}")),
    "messages": (_CHAT, lambda: filled(b'{"stream":true,"messages":[', b"{}", b"]}")),
    "parts": (_CHAT, lambda: filled(b'{"stream":true,"messages":[{"content":[', b"{}", b"]}]}")),
    "numbers": (_COMPLETIONS, lambda: filled(b'{"prompt":[', b"1", b"]}")),
    "members": (_COMPLETIONS, lambda: filled(b"{", b'"a":0', b"}")),
    "name": (_COMPLETIONS, lambda: b'{"' + "\u00e9".encode() * (_BODY // 2 - 10) + b'":0}'),
    "emoji": (_COMPLETIONS, lambda: b'{"prompt":"' + "\U0001f600".encode() * (_BODY // 4 - 10) + b'"}'),
    "stream": (_COMPLETIONS, lambda: filled(b'{"prompt":"a","stream":[', b"[]", b"]}")),
}


async def test_a_body_takes_a_small_multiple_of_its_size() -> None:
    """What the engines make of it does not matter here."""
    async with routing("--migration") as world:
        for engine in (world.parameter, world.decode):
            engine.parses, engine.fault = False, refuse
        for kind, (path, made) in _BODIES.items():
            world.forget_peak()
            before = world.memory()
            headers = {"Content-Type": "application/json"}
            async with world.client.post(f"{world.url}{path}", data=made(), headers=headers) as answer:
                assert answer.status == 400, kind
            assert world.memory("VmHWM") - before < 5 * _BODY, kind


async def refuse(_request: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "by the test", "code": 400}}, status=400)


_ANSWERS = {
    "large": b'{"kv_transfer_params":%b,"x":[%b1]}',
    "too large": b'{"kv_transfer_params":%b,"x":[%b1]}',
    "in the parameters": b'{"kv_transfer_params":{"remote_engine_id":"a","y":%b,"x":[%b1]}}',
}
_VALUES = {"large": 5 * _MIB, "too large": 20 * _MIB, "in the parameters": 5 * _MIB}


async def test_an_answer_of_parameter_takes_a_small_multiple_of_its_size(world: Routing) -> None:
    for kind, form in _ANSWERS.items():
        body = form % (json.dumps(PARAMS).encode(), b"[]," * _VALUES[kind])

        async def answer(_request: web.Request, body: bytes = body) -> web.Response:
            return web.Response(body=body, content_type="application/json")

        world.parameter.fault = answer
        world.forget_peak()
        before = world.memory()
        async with world.client.post(f"{world.url}/v1/completions", json={"prompt": "a"}) as found:
            assert found.status == 200, kind
        assert world.memory("VmHWM") - before < 64 * _MIB, kind


async def test_answers_of_decode_take_bounded_memory(world: Routing) -> None:
    """Clients that do not read leave what D has answered in the router."""
    large = b'{"x":"%b"}' % (b"a" * (32 * _MIB))

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=large, content_type="application/json")

    world.decode.fault = answer
    before = world.memory()
    body = b'{"prompt":"a"}'
    async with AsyncExitStack() as stack:
        readers, writers = [], []  # kept, as above
        for _ in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1)
            writers.append(writer)
            stack.callback(writer.transport.abort)
            writer.write(_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            readers.append(reader)
        first = [await asyncio.wait_for(reader.read(12), 40) for reader in readers]
        assert {line[9:] for line in first} == {b"200", b"503"}
        assert world.memory() - before < 400 * _MIB


async def test_metrics_without_an_end_take_little_memory(world: Routing) -> None:
    read: dict[str, Any] = {"bytes": 0}

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        line = b"vllm:" + b"a" * 4000 + b" 1\n"
        for _ in range(4096):
            await response.write(line)
            read["bytes"] += len(line)
        return response

    world.decode.metrics_fault = endless
    world.decode.go_on.clear()
    before = world.memory()
    asking = asyncio.create_task(world.client.post(f"{world.url}/v1/completions", json={"prompt": "a"}))

    async def several() -> bool:
        return world.decode.readings >= 2

    await until(several, "the monitor has read metrics", within=60)
    assert world.memory() - before < 16 * _MIB
    world.decode.go_on.set()
    (await asking).close()
