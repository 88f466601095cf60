"""What anyone who can connect may take, with or without a key: connections, heads, time."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from pdinference.router.connections import ConnectionLimits
from pdinference.router.server import RequestLimits
from tests.router.engines import EVENTS, Fleet, events, fleet
from tests.router.hostile_http import GOOD, request
from tests.waiting import until

LIMITS = ConnectionLimits(connections=40, head=32 * 2**10, heads=256 * 2**10, head_seconds=1.0, idle_seconds=5.0)
BEGUN = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture
async def world() -> AsyncIterator[Fleet]:
    async with fleet("p", "d", limits=RequestLimits(connections=LIMITS)) as found:
        yield found


@asynccontextmanager
async def connection(world: Fleet, host: str = "127.0.0.1") -> AsyncIterator[tuple[asyncio.StreamReader, Any]]:
    """A connection from an address of this machine."""
    port = int(world.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def refusal(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], dict[str, Any]]:
    """Status, headers and error of the last answer of a connection."""
    async with asyncio.timeout(20):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    assert line.startswith(b"HTTP/1.1 ")
    headers = {name.lower(): value for name, _, value in (field.partition(b": ") for field in fields)}
    return int(line.split()[1]), headers, json.loads(body)["error"]


def checked(status: int, headers: dict[bytes, bytes], error: dict[str, Any]) -> int:
    """The status of an answer that has OpenAI's form."""
    assert headers[b"content-type"].startswith(b"application/json")
    assert headers[b"x-request-id"]
    assert b"server" not in headers
    assert error["code"] == status
    assert error["message"]
    return status


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (BEGUN + b"X: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (BEGUN + b"".join(b"X%d: %b\r\n" % (one, b"a" * 2000) for one in range(30)) + b"\r\n", 431),
        (BEGUN + b"".join(b"X%d: a\r\n" % one for one in range(200)) + b"\r\n", 431),
        (b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (BEGUN + b"X: \x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"\x00\x01\x02\x03" * 100_000, 400),
    ],
    ids=["long", "long-together", "many", "target", "zero", "no-host", "garbage"],
)
async def test_what_is_no_head_is_refused_in_openais_form(world: Fleet, sent: bytes, status: int) -> None:
    async with connection(world) as (reader, writer):
        writer.write(sent)
        assert checked(*await refusal(reader)) == status
    assert (await world.post())[0] == 200


async def test_a_long_head_reaches_vllm(world: Fleet) -> None:
    """As vLLM, the router takes tokens and cookies of many kilobytes."""
    headers = {f"X-{number}": "a" * 7500 for number in range(4)} | {f"Y-{number}": "a" for number in range(80)}
    assert (await world.post(headers=headers))[0] == 200


async def test_a_head_that_does_not_come_is_given_up(world: Fleet) -> None:
    async with connection(world) as (reader, writer):
        writer.write(BEGUN)
        assert checked(*await refusal(reader)) == 408


async def test_heads_in_small_pieces_are_answered(world: Fleet) -> None:
    sent = request("small", GOOD, b"Connection: close")
    async with connection(world) as (reader, writer):
        for start in range(0, len(sent), 7):
            writer.write(sent[start : start + 7])
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")


async def test_heads_that_are_not_complete_are_bounded_for_each_address_and_for_all(world: Fleet) -> None:
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connection(world, "127.0.0.2")) for _ in range(12)]
        for _, writer in opened:
            writer.write(BEGUN + b"X: " + b"a" * 25_000)
        answers = [asyncio.create_task(refusal(reader)) for reader, _ in opened]
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert {checked(*answer.result()) for answer in done} == {503}
        async with connection(world, "127.0.0.3") as (reader, writer):  # another address
            writer.write(request("other", GOOD, b"Connection: close")[:20])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(request("other", GOOD, b"Connection: close")[20:])
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        assert {checked(*await answer) for answer in answers} <= {503, 408}


async def test_one_address_leaves_connections_to_others(world: Fleet) -> None:
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connection(world, "127.0.0.2")) for _ in range(30)]
        async with connection(world, "127.0.0.2") as (reader, _):
            assert checked(*await refusal(reader)) == 503
        async with connection(world, "127.0.0.3") as (reader, writer):
            writer.write(request("other", GOOD, b"Connection: close"))
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        for _, writer in opened:
            writer.close()

        async def free() -> bool:
            async with connection(world, "127.0.0.2") as (reader, writer):
                writer.write(request("again", GOOD, b"Connection: close"))
                return (await reader.read()).startswith(b"HTTP/1.1 200 ")

        await until(free, "connections that have ended are free")


@pytest.mark.parametrize(
    "chunk", [b"zz\r\n", b"-1\r\n", b"5\r\nabc", b"3\r\nabcdef\r\n", b"3\r\nabc\r\n0\r\n: a\r\n\r\n"]
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_bad_chunk_is_refused_at_once(world: Fleet, chunk: bytes, at_once: bool) -> None:
    head = BEGUN + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    bad = chunk + b"zz" * 10
    async with connection(world) as (reader, writer):
        if at_once:
            writer.write(head + bad)
        else:
            writer.write(head)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(bad)
        assert checked(*await refusal(reader)) == 400
    assert not world["d"].raw


@pytest.mark.parametrize(
    ("line", "status"), [(b"OPTIONS * HTTP/1.1", 404), (b"BREW /v1/models HTTP/1.1", 400), (b"GET /a HTTP/1.1", 404)]
)
async def test_no_answer_names_the_software(world: Fleet, line: bytes, status: int) -> None:
    async with connection(world) as (reader, writer):
        writer.write(line + b"\r\nHost: a\r\nConnection: close\r\n\r\n")
        found, headers, error = await refusal(reader)
    assert (found, error["code"]) == (status, status)
    assert b"server" not in headers


async def test_good_answers_do_not_name_it_either(world: Fleet) -> None:
    for more in ({}, {"stream": True}, {"prompt": 5, "n": "a"}):
        _, headers, _ = await world.post(more)
        assert "Server" not in headers


async def test_pipelined_requests_that_wait_are_bounded(world: Fleet) -> None:
    world["d"].go_on.clear()
    async with connection(world) as (reader, writer):
        writer.write(request("first", GOOD))
        await world["d"].arrived.wait()
        writer.write(request("next", GOOD, b"X: " + b"a" * 6000) * 100)
        await writer.drain()
        world["d"].go_on.set()
        got = b""
        with suppress(ConnectionError):  # it is closed while the client sends
            async with asyncio.timeout(20):
                while chunk := await reader.read(65_536):
                    got += chunk
    assert got.count(b"HTTP/1.1 200 ") < 50
    assert (await world.post())[0] == 200


async def test_a_stream_to_a_client_of_http_1_0_ends_with_its_connection(world: Fleet) -> None:
    """It has no chunks, so that the answer to a next request would be a part of it."""
    sent = request("a", b'{"prompt":"a","stream":true}', b"Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")
    async with connection(world) as (reader, writer):
        writer.write(sent)
        async with asyncio.timeout(LIMITS.idle_seconds / 2):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert b"keep-alive" not in head.lower()
    assert body == b"".join(EVENTS)


async def test_a_stream_that_is_cut_before_garbage_is_answered_does_not_look_complete(
    world: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    cut = asyncio.Event()

    async def cuts(asked: web.Request) -> web.StreamResponse:
        response = await events(asked)
        await response.write(EVENTS[0])
        await cut.wait()
        assert asked.transport is not None
        asked.transport.close()
        return response

    world["d"].fault = cuts
    async with connection(world) as (reader, writer):
        writer.write(request("a", b'{"prompt":"a","stream":true}'))
        got = await reader.readuntil(EVENTS[0])
        writer.write(b"garbage\r\n\r\n")
        async with world.client.get(f"{world.url}/health"):  # the router has read it
            cut.set()
        async with asyncio.timeout(20):
            got += await reader.read()
    assert b'"error"' in got
    assert not got.endswith(b"0\r\n\r\n")
    world["d"].fault = None
    assert (await world.post())[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/x", 404)])
async def test_the_port_of_the_state_answers_odd_requests_without_a_traceback(
    world: Fleet, caplog: pytest.LogCaptureFixture, path: str, status: int
) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: ".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(world.state.rpartition(":")[2]))
    writer.write(head + b"\xff\r\n\r\n")
    async with asyncio.timeout(20):
        assert (await reader.read()).startswith(b"HTTP/1.1 %d " % status)
    writer.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
