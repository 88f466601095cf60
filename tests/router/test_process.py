"""The router as a process of its own: files, and memory under attack."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from tests.integration.world import until
from tests.router.engines import PARAMS
from tests.router.process import Routing, routing

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
        for _ in range(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            stack.callback(writer.transport.abort)
            writer.write(_HEAD + b"".join(b"X%d: %b\r\n" % (one, b"a" * 8000) for one in range(64)))
        await asyncio.wait_for(reader.read(1), 20)  # the last one has an answer, so the others were read
        assert world.memory() - before < 64 * _MIB


def filled(begin: bytes, unit: bytes, end: bytes) -> bytes:
    """A body of the largest size."""
    return begin + b",".join([unit] * ((_BODY - len(begin + end)) // (len(unit) + 1))) + end


_BODIES: dict[str, Callable[[], bytes]] = {
    "options": lambda: filled(b'{"prompt":"a","stream":true,"stream_options":{"x":[', b"[]", b"]}}"),
    "options-list": lambda: filled(b'{"prompt":"a","stream":true,"stream_options":[', b"[]", b"]}"),
    "objects": lambda: filled(b'{"prompt":"a","logit_bias":[', b"{}", b"]}"),
    "messages": lambda: filled(b'{"messages":[', b"{}", b"]}"),
    "numbers": lambda: filled(b'{"prompt":[', b"1", b"]}"),
    "members": lambda: filled(b"{", b'"a":0', b"}"),
    "name": lambda: b'{"' + "é".encode() * (_BODY // 2 - 10) + b'":0}',
    "emoji": lambda: b'{"prompt":"' + "😀".encode() * (_BODY // 4 - 10) + b'"}',
    "stream": lambda: filled(b'{"prompt":"a","stream":[', b"[]", b"]}"),
}


@pytest.mark.parametrize("kind", _BODIES)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_body_takes_a_small_multiple_of_its_size(kind: str, path: str) -> None:
    body = _BODIES[kind]()
    assert len(body) <= _BODY
    async with routing("--migration") as world:
        # What the engines of this test make of it does not matter.
        world.parameter.fault = world.decode.fault = refuse
        world.forget_peak()
        before = world.memory()
        async with world.client.post(
            f"{world.url}{path}", data=body, headers={"Content-Type": "application/json"}
        ) as answer:
            assert answer.status == 400
        assert world.memory("VmHWM") - before < 5 * _BODY


async def refuse(_request: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "by the test", "code": 400}}, status=400)


_ANSWERS = {
    "large": b'{"kv_transfer_params":%b,"x":[%b]}' % (json.dumps(PARAMS).encode(), b"[]," * (5 * _MIB) + b"1"),
    "too-large": b'{"kv_transfer_params":%b,"x":[%b]}' % (json.dumps(PARAMS).encode(), b"[]," * (20 * _MIB) + b"1"),
    "params": b'{"kv_transfer_params":{"remote_engine_id":"a","x":[%b]}}' % (b"[]," * (5 * _MIB) + b"1"),
}


@pytest.mark.parametrize("kind", _ANSWERS)
async def test_an_answer_of_parameter_takes_a_small_multiple_of_its_size(world: Routing, kind: str) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=_ANSWERS[kind], content_type="application/json")

    world.parameter.fault = answer
    world.forget_peak()
    before = world.memory()
    async with world.client.post(f"{world.url}/v1/completions", json={"prompt": "a"}) as found:
        assert found.status == 200
    assert world.memory("VmHWM") - before < 64 * _MIB


async def test_answers_of_decode_take_bounded_memory(world: Routing) -> None:
    """Clients that do not read leave what D has answered in the router."""
    large = b'{"x":"%b"}' % (b"a" * (32 * _MIB))

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=large, content_type="application/json")

    world.decode.fault = answer
    before = world.memory()
    body = b'{"prompt":"a"}'
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1)
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
