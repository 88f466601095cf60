"""aiohttp's client against servers whose responses are not correct HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from pdinference.http_connections import Connector
from tests.waiting import until

Send = Callable[[bytes], Awaitable[None]]
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
FAULTS = {
    "a bad size of a chunk": b"zz\r\n",
    "no line end after a chunk": b"2\r\nabXX",
    "a bad trailer": b"0\r\nX\x00: a\r\n\r\n",
    "another response in the body": b"HTTP/1.1 500 Fault\r\n\r\n",
    "an end within a chunk": b"9\r\nab",
    "an end between two chunks": b"",
}


@asynccontextmanager
async def server(answer: Callable[[int, Send], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that answers each request by its number. It yields its URL."""
    number = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        nonlocal number
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                number += 1
                await answer(number, send)
        except (asyncio.IncompleteReadError, ConnectionError, EOFError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_body_that_breaks_off_ends_with_an_error(fault: str) -> None:
    begun = asyncio.Event()

    async def answer(_number: int, send: Send) -> None:
        await send(CHUNKED)
        await begun.wait()  # in one piece with the headers, aiohttp reports it
        await send(FAULTS[fault])
        raise EOFError

    async with server(answer) as url, aiohttp.ClientSession(connector=Connector()) as session, session.get(url) as got:
        assert await got.content.readany() == b"abc"
        begun.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await asyncio.wait_for(got.content.read(), 20)


@pytest.mark.parametrize("at_once", [True, False], ids=["with the end", "after it"])
async def test_a_response_without_a_request_answers_no_other_request(at_once: bool) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def answer(_number: int, send: Send) -> None:
        await send(CHUNKED)
        await begun.wait()
        if not at_once:
            await send(b"0\r\n\r\n")
            await ended.wait()
        await send((b"0\r\n\r\n" if at_once else b"") + WHOLE + b"X")

    async with server(answer) as url, aiohttp.ClientSession(connector=Connector()) as session:
        async with session.post(url) as first:
            assert await first.content.readany() == b"abc"
            begun.set()
            assert await first.content.readany() == b""
        kept = connections(session)
        ended.set()

        async def dropped() -> bool:
            return not any(connection.is_connected() for connection in kept)

        await until(dropped, "the connection is closed")
        async with session.post(url) as second:
            assert await second.content.readany() == b"abc"


async def test_a_body_may_come_before_its_head_is_read() -> None:
    """A loop that is busy reads late."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        await begun.wait()
        writer.write(b"0\r\n\r\n")

    begun = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        address = listening.sockets[0].getsockname()
        async with Connector() as connector:
            transport, connection = await asyncio.get_running_loop().create_connection(connector._factory, *address)
            connection.set_response_params()

            async def has(state: Callable[[aiohttp.StreamReader], bool]) -> None:
                async def holds() -> bool:
                    return connection._payload is not None and state(connection._payload)

                await until(holds, "the body comes")

            await has(lambda body: body.total_bytes == 3)
            begun.set()
            await has(aiohttp.StreamReader.is_eof)
            head, body = await connection.read()
            assert head.code == 200
            assert await body.read() == b"abc"
            transport.close()


async def test_a_connection_is_used_again_after_a_correct_response() -> None:
    async def answer(_number: int, send: Send) -> None:
        await send(WHOLE + b"a")

    kept = []
    async with server(answer) as url, aiohttp.ClientSession(connector=Connector()) as session:
        for _ in range(3):
            async with session.post(url) as got:
                assert await got.read() == b"a"
            kept += connections(session)
    assert len(kept) == 3
    assert len(set(kept)) == 1


def connections(session: aiohttp.ClientSession) -> list[ResponseHandler]:
    """The idle ones."""
    assert session.connector is not None
    return [handler for kept in session.connector._conns.values() for handler, _ in kept]
