"""What comes in: paths, sizes, times, numbers, and HTTP that is none."""

import asyncio
import json
import random
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from pdinference.router.server import Limits
from tests.integration.world import until
from tests.router.engines import Fleet, events, fleet

CLOSED = (
    "/pause",
    "/resume",
    "/sleep",
    "/wake_up",
    "/flush_cache",
    "/reset_prefix_cache",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/collective_rpc",
    "/start_profile",
    "/scale_elastic_ep",
    "/list_workers",
    "/remove_worker",
    "/workers/1",
    "/server_info",
    "/metrics",
    "/docs",
    "/v1/completions/render",
    "/v1/completions/",
    "//v1/completions",
    "/v1/../pause",
    "/v1/completions%2f..%2f..%2fpause",
)


@pytest.fixture
async def world() -> AsyncIterator[Fleet]:
    async with fleet("p", "d", limits=Limits(body=1000, body_seconds=0.5, requests=2)) as found:
        yield found


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "PATCH"])
async def test_only_listed_paths_reach_pods(world: Fleet, method: str) -> None:
    for path in CLOSED:
        async with world.client.request(method, world.url + path, json={}) as answer:
            assert answer.status in {404, 405}, path
    assert not world["p"].raw + world["d"].raw


async def test_what_models_there_are_is_asked_of_any_pod(world: Fleet) -> None:
    await world["d"].stop()
    async with world.client.get(f"{world.url}/v1/models") as answer:
        assert (answer.status, (await answer.json())["path"]) == (200, "/v1/models")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'"a"', 400),
        (b"\xff", 400),
        (b"[" * 900, 400),
        (b'{"a":' * 150 + b"1" + b"}" * 150, 200),
        (b'{"prompt": "' + b"a" * 1000 + b'"}', 413),
    ],
)
async def test_a_malformed_body_is_refused_with_openais_form(world: Fleet, body: bytes, status: int) -> None:
    kind = {"Content-Type": "application/json"}
    async with world.client.post(f"{world.url}/v1/completions", data=body, headers=kind) as answer:
        assert answer.status == status
        found = await answer.json()
    if status != 200:
        assert found["error"]["type"] == "invalid_request_error"
        assert not world["d"].raw


async def test_a_very_deep_body_is_refused() -> None:
    deep = b'{"a":' * 200_000 + b"1" + b"}" * 200_000
    async with fleet("p", "d") as world:
        async with world.client.post(f"{world.url}/v1/completions", data=deep) as answer:
            assert answer.status == 400
        assert not world["d"].raw
        assert (await world.post())[0] == 200


async def test_bytes_of_all_bodies_are_limited() -> None:
    async with fleet("p", "d", limits=Limits(body=2_000_000, bodies=3_000_000)) as world:
        world["d"].go_on.clear()
        large = {"prompt": "a" * 1_900_000}
        asked = asyncio.create_task(world.post(large))
        await world["d"].arrived.wait()
        assert (await world.post(large))[0] == 503
        world["d"].go_on.set()
        assert (await asked)[0] == 200
        assert (await world.post(large))[0] == 200


async def test_a_slow_body_is_given_up(world: Fleet) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with world.client.post(f"{world.url}/v1/completions", data=slow()) as answer:
        assert answer.status == 408


async def test_requests_at_a_time_are_limited(world: Fleet) -> None:
    world["d"].go_on.clear()
    asked = [asyncio.create_task(world.post()) for _ in range(2)]

    async def both() -> bool:
        return len(world["d"].raw) == 2

    await until(both, "two requests are under way")
    status, headers, _ = await world.post()
    assert (status, headers["Retry-After"]) == (503, "5")
    world["d"].go_on.set()
    assert [one[0] for one in await asyncio.gather(*asked)] == [200, 200]
    assert (await world.post())[0] == 200


async def test_credentials_of_clients_stay_outside(world: Fleet) -> None:
    await world.post(headers={"Authorization": "Bearer a", "Cookie": "b=c", "X-Api-Key": "d", "traceparent": "00-1"})
    for engine in world.engines.values():
        sent = {name.lower() for name in engine.headers[0]}
        assert not sent & {"authorization", "cookie", "x-api-key"}
        assert "traceparent" in sent


@pytest.mark.parametrize("sent", ["", "a" * 200, "a\tb", "é"])
async def test_an_unusable_request_id_is_replaced(world: Fleet, sent: str) -> None:
    _, headers, _ = await world.post(headers={"X-Request-Id": sent})
    assert headers["X-Request-Id"] not in {"", sent}
    assert world["d"].headers[0]["X-Request-Id"] == headers["X-Request-Id"]


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
ADMIN = b"POST /pause HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
SMUGGLED = {
    "both lengths": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + ADMIN,
    "two lengths": b"Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}" + ADMIN,
    "length in hexadecimal": b"Content-Length: 0x2\r\n\r\n{}" + ADMIN,
    "negative length": b"Content-Length: -1\r\n\r\n{}" + ADMIN,
    "space before the colon": b"Content-Length : 2\r\n\r\n{}" + ADMIN,
    "folded header": b"X: a\r\n Content-Length: 60\r\nContent-Length: 2\r\n\r\n{}" + ADMIN,
    "other encoding": b"Transfer-Encoding: xchunked\r\n\r\n{}" + ADMIN,
    "encoding twice": b"Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + ADMIN,
    "bare line feeds": b"Transfer-Encoding: chunked\n\n2\n{}\n0\n\n" + ADMIN,
    "huge header": b"X: " + b"a" * 100_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    "many headers": b"".join(b"X%d: a\r\n" % number for number in range(50_000)) + b"Content-Length: 2\r\n\r\n{}",
}


async def exchanged(world: Fleet, sent: bytes) -> bytes:
    """What comes back on a connection that is half closed afterwards."""
    host, _, port = world.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("name", SMUGGLED)
async def test_smuggled_requests_reach_no_pod(world: Fleet, name: str) -> None:
    await exchanged(world, HEAD + SMUGGLED[name])
    assert not [headers for engine in world.engines.values() for headers in engine.headers if "pause" in str(headers)]
    assert b"POST" not in b"".join(world["p"].raw + world["d"].raw)
    assert (await world.post())[0] == 200


async def test_torn_and_mutated_requests_leave_the_router_serving() -> None:
    chance = random.Random(7)  # noqa: S311 - the same each time
    body = json.dumps({"prompt": "a", "max_tokens": 3}).encode()
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with fleet("p", "d", limits=Limits(body_seconds=0.3)) as world:
        for _ in range(300):
            sent = bytearray(whole)
            for _ in range(chance.randrange(4)):
                sent[chance.randrange(len(sent))] = chance.randrange(256)
            await exchanged(world, bytes(sent[: chance.randrange(1, len(sent) + 1)]))
        assert (await world.post())[0] == 200
        assert not any(b"POST" in raw for raw in world["d"].raw)


async def test_a_client_that_reads_nothing_is_given_up() -> None:
    stopped = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = await events(request)
        try:
            while True:
                await response.write(b"data: " + b"a" * 65_536 + b"\n\n")
        except (ConnectionError, asyncio.CancelledError):
            stopped.set()
            raise

    async with fleet("p", "d", limits=Limits(unread_seconds=1)) as world:
        world["d"].fault = endless
        host, _, port = world.url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        body = b'{"prompt": "a", "stream": true}'
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await asyncio.wait_for(stopped.wait(), 60)
        writer.close()


async def test_a_client_that_reads_slowly_gets_all(world: Fleet) -> None:
    async with world.client.post(
        f"{world.url}/v1/completions", json={"prompt": "a", "stream": True}, timeout=aiohttp.ClientTimeout(30)
    ) as answer:
        got = b""
        while chunk := await answer.content.read(7):
            got += chunk
    assert got.endswith(b"data: [DONE]\n\n")
