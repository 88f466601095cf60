"""A client that reads slowly says nothing of the pod that answers it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any, Final

import pytest
from aiohttp import web

from pdinference.api.names import PodFault
from pdinference.router.server import RequestLimits
from tests.router import engines
from tests.router.engines import Fleet, fleet
from tests.router.test_failures import hang_without_kv_cache
from tests.router.test_faults import pod_of
from tests.waiting import LONG_S

EVENT: Final = b'data: {"choices": [{"text": "%s"}]}\n\n' % (b"a" * 2**14)
NUMBER: Final = 20 * 2**20 // len(EVENT)
"""More than the kernel's buffers of all connections hold."""
WHOLE: Final = json.dumps({"choices": [{"text": "a" * NUMBER * len(EVENT)}]}).encode()
STREAMS: Final = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


async def much(request: web.Request) -> web.StreamResponse:
    """A long answer, which the pod sends as fast as it is read."""
    if not (await request.json()).get("stream"):
        return web.Response(body=WHOLE, content_type="application/json")
    response = await engines.events(request)
    for _ in range(NUMBER):
        await response.write(EVENT)
    await response.write(b"data: [DONE]\n\n")
    return response


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SlowClient:
    """A client that has read the beginning of its answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._got = bytearray()

    async def ask(self, *, stream: bool) -> None:
        body = json.dumps({"prompt": "a", "stream": stream}).encode()
        lines = (
            "POST /v1/completions HTTP/1.1",
            "Host: a",
            "Connection: close",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        head = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
        await asyncio.get_running_loop().sock_sendall(self._connection, head + body)
        assert await self._read(1)

    async def rest(self) -> bytes:
        """All of its answer, which it reads now."""
        while await self._read(2**16):
            pass
        return bytes(self._got)

    async def _read(self, most: int) -> bool:
        got = await asyncio.get_running_loop().sock_recv(self._connection, most)
        self._got += got
        return bool(got)


@asynccontextmanager
async def unread(world: Fleet, *, stream: bool, answer: Answer = much) -> AsyncIterator[SlowClient]:
    """A client that does not read its answer from d1."""
    world.observe("d2")
    world["d1"].fault = answer
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", int(world.url.rpartition(":")[2])))
        client = SlowClient(connection)
        await client.ask(stream=stream)
        world["d1"].fault = None
        world["d1"].arrived.clear()
        yield client


@STREAMS
async def test_a_pod_whose_answer_is_not_read_has_no_fault(stream: bool) -> None:
    async with fleet("p", "d1", "d2", silence=0.1, stall=0.5) as world, unread(world, stream=stream) as client:
        world.observe()
        for name in ("d1", "d2"):
            world[name].steps = repeat(7)
        world["d2"].fault = engines.hang
        # d2 has fewer requests. It stalls after as much time as d1, which has made no step for longer.
        code, _, body = await asyncio.wait_for(world.post(), LONG_S)
        assert (code, body["by"]) == (200, "d1")
        assert [pod_of(world, name).fault for name in ("d1", "d2")] == [None, PodFault.STALLED]
        got = await asyncio.wait_for(client.rest(), LONG_S)
        assert got.count(EVENT) == NUMBER if stream else got.endswith(WHOLE)


@STREAMS
async def test_a_pod_that_stalls_is_found_although_an_answer_of_it_is_not_read(stream: bool) -> None:
    async with fleet("p", "d1", "d2", silence=0.1, stall=0.5) as world, unread(world, stream=stream):
        world["d1"].fault, world["d1"].steps = engines.hang, repeat(7)
        asked: asyncio.Task[Any] = asyncio.create_task(world.post())
        await world["d1"].arrived.wait()
        world.observe()
        code, _, body = await asyncio.wait_for(asked, LONG_S)
        assert (code, body["by"]) == (200, "d2")
        assert pod_of(world, "d1").fault is PodFault.STALLED


async def test_a_pod_that_stalls_in_a_stream_is_found_once_its_client_has_read_what_came() -> None:
    async def stall(request: web.Request) -> web.StreamResponse:
        response = await engines.events(request)
        for _ in range(NUMBER):
            await response.write(EVENT)
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        fleet("p", "d1", "d2", silence=0.1, stall=0.5) as world,
        unread(world, stream=True, answer=stall) as client,
    ):
        world["d1"].steps = repeat(7)
        got = await asyncio.wait_for(client.rest(), LONG_S)
        assert got.count(EVENT) == NUMBER
        assert b"(stalled)" in got
        assert pod_of(world, "d1").fault is PodFault.STALLED


async def test_an_answer_that_waits_for_room_does_not_wait_for_kv_cache() -> None:
    """The answer to a slow client takes the room. D has computed the next one, so its KV cache came."""
    limits = RequestLimits(answers=28 * 2**20, room_seconds=LONG_S)
    async with (
        fleet("p", "d1", "d2", transfer=0.8, limits=limits) as world,
        unread(world, stream=False) as client,
    ):
        world["d1"].fault, world["d1"].steps = much, repeat(7)
        waits = asyncio.create_task(world.post())
        await world["d1"].arrived.wait()
        world["d1"].fault = None
        world.observe()
        world["d2"].fault, world["d2"].steps = hang_without_kv_cache, repeat(7)
        # A later one whose KV cache really does not come, and which is answered by d1 then.
        code, headers, _ = await asyncio.wait_for(world.post(), LONG_S)
        assert (code, headers["X-PDInference-Prefill"]) == (200, "decode")
        assert not waits.done()
        assert (await asyncio.wait_for(client.rest(), LONG_S)).endswith(WHOLE)
        code, headers, _ = await asyncio.wait_for(waits, LONG_S)
        assert (code, headers["X-PDInference-Prefill"]) == (200, "parameter")
        assert await world.metric('pdinference_router_pod_failures_total{reason="kv_cache"') == 1
