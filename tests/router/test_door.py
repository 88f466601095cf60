"""What comes in: paths, sizes, times and numbers. `test_fuzzer.py` has what is no correct HTTP."""

import asyncio
import logging
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from pdinference.router.bodies import Bodies
from pdinference.router.memory import limits_of, memory_limit
from pdinference.router.relay import Relay
from pdinference.router.room import Room
from pdinference.router.server import RequestLimits
from tests.router.engines import Fleet, events, fleet
from tests.waiting import until

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
    async with fleet("p", "d", limits=RequestLimits(body=1000, body_seconds=0.5, requests=3)) as found:
        yield found


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "PATCH"])
async def test_only_listed_paths_reach_pods(world: Fleet, method: str) -> None:
    for path in CLOSED:
        async with world.client.request(method, world.url + path, json={}) as answer:
            assert (answer.status, answer.content_type) == (404, "application/json"), path
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


async def test_a_body_of_very_many_members_is_refused() -> None:
    """Each would take two hundred bytes."""
    kind = {"Content-Type": "application/json"}
    wide = b"{" + b",".join(b'"%d\\\\":0' % number for number in range(100_001)) + b"}"
    async with fleet("p", "d") as world:
        async with world.client.post(f"{world.url}/v1/completions", data=wide, headers=kind) as answer:
            assert (answer.status, "strings" in await answer.text()) == (400, True)
        assert not world["d"].raw


async def test_values_reach_pods_as_they_came(world: Fleet) -> None:
    kind = {"Content-Type": "application/json"}
    body = b'{"prompt":"\\u00e9","n":1,"a":{"b":1e999,"b":[ 12345678901234567890123 ]}}'
    async with world.client.post(f"{world.url}/v1/completions", data=body, headers=kind) as answer:
        assert answer.status == 200
    for engine in world.engines.values():
        assert b'"prompt":"\\u00e9"' in engine.raw[0]
        assert b'"a":{"b":1e999,"b":[ 12345678901234567890123 ]}' in engine.raw[0]


async def test_compressed_bodies_are_refused(world: Fleet) -> None:
    """A few kilobytes could become gigabytes, and vLLM does not take them either."""
    async with world.client.post(f"{world.url}/v1/completions", data=b"{}", compress="gzip") as answer:
        assert answer.status == 415


async def test_a_client_that_goes_while_it_is_written_to_is_no_fault(
    world: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(*_: object) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(Relay, "pass_on", gone)
    with pytest.raises(aiohttp.ClientError):
        await world.post({"stream": True})
    assert await world.metric('pdinference_router_requests_total{client="",outcome="cancelled"') == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_bytes_of_all_bodies_are_limited() -> None:
    async with fleet("p", "d", limits=RequestLimits(body=2_000_000, bodies=4_000_000, room_seconds=0.1)) as world:
        world["d"].go_on.clear()
        large = {"prompt": "a" * 1_900_000}
        asked = asyncio.create_task(world.post(large))
        await world["d"].arrived.wait()
        assert (await world.post(large))[0] == 503
        world["d"].go_on.set()
        assert (await asked)[0] == 200
        assert (await world.post(large))[0] == 200


async def test_a_body_waits_for_room() -> None:
    async with fleet("p", "d", limits=RequestLimits(body=2_000_000, bodies=4_000_000, room_seconds=30)) as world:
        world["d"].go_on.clear()
        large = {"prompt": "a" * 1_900_000}
        first = asyncio.create_task(world.post(large))
        await world["d"].arrived.wait()
        second = asyncio.create_task(world.post(large))
        assert (await world.client.get(f"{world.url}/v1/models")).status == 200
        assert len(world["p"].raw) + len(world["d"].raw) == 3
        world["d"].go_on.set()
        assert [(await one)[0] for one in (first, second)] == [200, 200]


async def test_whole_answers_wait_for_room() -> None:
    """They come at a time, and none waits half held for the others."""

    async def large(_request: web.Request) -> web.Response:
        return web.Response(body=b'{"a":"%b"}' % (b"b" * 2**20), content_type="application/json")

    async with fleet("p", "d", limits=RequestLimits(answers=3 * 2**20, room_seconds=30)) as world:
        world["d"].fault = large
        assert [one[0] for one in await asyncio.gather(*(world.post() for _ in range(8)))] == [200] * 8


async def test_slow_bodies_of_one_client_leave_room_for_others() -> None:
    body = 2_000_000
    async with fleet("p", "d", limits=RequestLimits(body=body, bodies=8_000_000, room_seconds=0.1)) as world:
        host, _, port = world.url.removeprefix("http://").partition(":")
        slow = []
        for _ in range(6):
            reader, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % body + b"{" * (body // 2))
            slow.append((reader, writer))
        refused = await asyncio.wait_for(slow[-1][0].readline(), 20)
        assert b" 503 " in refused, "the client that is slow gets no more room"
        assert (await world.post({"prompt": "a" * 1_000_000}))[0] == 200
        for _, writer in slow:
            writer.transport.abort()


async def test_a_body_that_comes_too_slowly_is_given_up(world: Fleet) -> None:
    async def slow() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    async with world.client.post(f"{world.url}/v1/completions", data=slow()) as answer:
        assert answer.status == 408


@pytest.mark.parametrize(("memory", "mebibytes"), [(None, 137), (256, 21), (512, 52), (4096, 649)])
def test_limits_follow_the_memory_of_the_container(memory: int | None, mebibytes: int) -> None:
    assert limits_of(memory and memory * 2**20).bodies // 2**20 == mebibytes


@pytest.mark.parametrize(("text", "limit"), [("max\n", None), ("536870912\n", 2**29), ("9223372036854771712\n", None)])
def test_the_memory_of_the_container(tmp_path: Path, text: str, limit: int | None) -> None:
    assert memory_limit(tmp_path) is None
    (tmp_path / "memory.max").write_text(text, encoding="ascii")
    assert memory_limit(tmp_path) == limit


class InPieces:
    """A body that comes in eight pieces."""

    size = 2**23

    def __init__(self) -> None:
        self._left = 8

    async def readany(self) -> bytes:
        self._left -= 1
        return bytes(self.size // 8) if self._left >= 0 else b""


async def test_a_body_is_held_once() -> None:
    """The limit on all bodies is that of the memory that they take."""
    request = make_mocked_request("POST", "/v1/completions", payload=InPieces())  # type: ignore[arg-type]
    bodies = Bodies(longest=2**24, room=Room(2**25, 1.0), seconds=5.0)
    tracemalloc.start()
    try:
        async with bodies.body(request, "a") as body:
            assert len(body) == InPieces.size
            held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.2 * InPieces.size


async def test_a_slow_body_is_given_up(world: Fleet) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with world.client.post(f"{world.url}/v1/completions", data=slow()) as answer:
        assert answer.status == 408


async def test_requests_at_a_time_are_limited(world: Fleet) -> None:
    """Of three, one client gets two."""
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
    assert world["d"].headers[0]["X-Request-Id"].startswith(headers["X-Request-Id"])


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


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

    async with fleet("p", "d", limits=RequestLimits(unread_seconds=1)) as world:
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
