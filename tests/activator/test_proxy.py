"""Real requests through an activator to a small server that plays the router."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from pdinference.activator.gate import Gate
from pdinference.activator.run import Ports, serving
from pdinference.api.names import METRIC_HELD_REQUESTS

LONG = b"x" * 3_000_000
"""Too long to be kept."""


class Router:
    """What stands behind; without a pair it answers as vllm-router does."""

    def __init__(self) -> None:
        self.pair = True
        self.seen: list[web.BaseRequest] = []
        self.bodies: list[bytes] = []
        self.left = asyncio.Event()
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()

    async def readiness(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.pair else 503)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not self.pair:
            return web.Response(status=503, text="no pods")
        self.seen.append(request)
        self.bodies.append(await request.read())
        return web.Response(text="answer", headers={"X-Of": "router", "Connection": "close"}, status=201)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await response.write(b"data: 1\n\n")
            await self.go_on.wait()
            await response.write(b"data: 2\n\n")
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise
        return response

    async def slow(self, request: web.Request) -> web.Response:
        await request.read()
        self.asked.set()
        await self.go_on.wait()
        return web.Response(status=200 if self.pair else 503)

    async def vanishing(self, request: web.Request) -> web.Response:
        """The last pods go while the request is on its way."""
        await request.read()
        self.pair = False
        return web.Response(status=503)

    async def broken(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response


class Front:
    """An activator in front of a router."""

    def __init__(self, router: Router, gate: Gate, client: aiohttp.ClientSession) -> None:
        self.router = router
        self.gate = gate
        self.client = client
        self.router_url = ""
        self.url = ""
        self.state = ""

    async def post(self, path: str = "/v1/completions?a=1%202", body: bytes = b"{}") -> tuple[int, str]:
        async with self.client.post(self.url + path, data=body) as answer:
            return answer.status, await answer.text()

    async def held(self, count: int) -> None:
        await until(lambda: self.gate.held == count)

    async def opened(self) -> None:
        await until(lambda: self.gate.latched)


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    router = Router()
    app = web.Application(client_max_size=2**26)
    app.add_routes(
        [
            web.get("/readiness", router.readiness),
            web.post("/v1/stream", router.stream),
            web.post("/v1/broken", router.broken),
            web.post("/v1/slow", router.slow),
            web.post("/v1/vanishing", router.vanishing),
            web.route("*", "/v1/{tail:.*}", router.answer),
        ]
    )
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gate = Gate(limit=2, max_wait=10)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        client = await stack.enter_async_context(aiohttp.ClientSession())
        places = Ports(0, 0, runner.addresses[0][1])
        found = Front(router, gate, client)
        requests, state = await stack.enter_async_context(serving(places, gate, drain_seconds=5))
        found.router_url = f"http://127.0.0.1:{places.router}"
        found.url, found.state = f"http://127.0.0.1:{requests}", f"http://127.0.0.1:{state}"
        yield found


async def test_a_request_goes_through_as_it_is(front: Front) -> None:
    await front.opened()
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json", "Connection": "keep-alive"}
    url = front.url + "/v1/completions?a=1%202"
    async with front.client.post(url, data=b'{"prompt": "x"}', headers=headers) as answer:
        assert (answer.status, await answer.text(), answer.headers["X-Of"]) == (201, "answer", "router")
    (seen,) = front.router.seen
    assert seen.raw_path == "/v1/completions?a=1%202"
    assert seen.headers["Authorization"] == "Bearer secret"
    assert seen.headers["Content-Type"] == "application/json"
    assert front.router.bodies == [b'{"prompt": "x"}']


async def test_nothing_is_unpacked_or_added_on_the_way(front: Front) -> None:
    await front.opened()
    packed = gzip.compress(b"x" * 3_000_000, mtime=0) + b"y" * 300_000
    added = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
    async with front.client.post(
        front.url + "/v1/completions", data=packed, headers={"Content-Encoding": "gzip"}, skip_auto_headers=added
    ) as answer:
        assert answer.status == 201
    assert front.router.bodies == [packed]
    assert not set(added) & set(front.router.seen[0].headers)


async def test_what_is_too_long_to_be_kept_waits_for_a_pair_before_it_is_sent(front: Front) -> None:
    """The gate is still open, because its state was not updated after the last pods were deleted."""
    await front.opened()
    front.router.pair = False
    front.gate.set(opened=True)
    task = asyncio.create_task(front.post(body=LONG))
    await front.held(1)
    front.router.pair = True
    assert await task == (201, "answer")


async def test_what_cannot_be_sent_again_is_told_to_come_back(front: Front) -> None:
    await front.opened()
    async with front.client.post(front.url + "/v1/vanishing", data=LONG) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
        assert "Retry the request" in (await answer.json())["error"]["message"]


async def test_what_is_too_long_to_be_kept_is_passed_on_as_it_comes(front: Front) -> None:
    await front.opened()
    assert (await front.post(body=LONG))[0] == 201
    assert front.router.bodies == [LONG]


async def test_an_answer_is_passed_on_as_it_comes(front: Front) -> None:
    await front.opened()
    async with front.client.post(front.url + "/v1/stream") as answer:
        assert await answer.content.readuntil(b"\n\n") == b"data: 1\n\n"
        front.router.go_on.set()
        assert await answer.content.readuntil(b"\n\n") == b"data: 2\n\n"


async def test_who_goes_away_stops_the_work_behind(front: Front) -> None:
    await front.opened()
    answer = await front.client.post(front.url + "/v1/stream")
    await answer.content.readuntil(b"\n\n")
    answer.close()
    await asyncio.wait_for(front.router.left.wait(), 60)


async def test_half_an_answer_does_not_look_like_a_whole_one(front: Front) -> None:
    await front.opened()
    with pytest.raises(aiohttp.ClientError):
        await front.post("/v1/broken")


async def test_requests_wait_for_a_pair_and_are_counted(front: Front) -> None:
    await front.opened()
    front.router.pair = False
    tasks = [asyncio.create_task(front.post()) for _ in range(2)]
    await front.held(2)
    async with front.client.get(front.state + "/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    assert {s.name: s.value for f in families for s in f.samples}[METRIC_HELD_REQUESTS] == 2
    status, text = await front.post()
    assert status == 503
    assert "full (2 requests)" in text
    front.router.pair = True
    assert await asyncio.gather(*tasks) == [(201, "answer")] * 2


async def test_a_request_that_meets_the_last_pod_leaving_waits_for_the_next(front: Front) -> None:
    """The router reports that it has no pods before the activator has updated its state."""
    await front.opened()
    front.router.pair = False
    front.gate.set(opened=True)
    task = asyncio.create_task(front.post())
    await front.held(1)
    front.router.pair = True
    assert await task == (201, "answer")


async def test_looking_neither_waits_nor_counts(front: Front) -> None:
    front.router.pair = False
    idle = front.gate.idle_seconds
    async with front.client.get(front.url + "/v1/models") as answer:
        assert answer.status == 503
    assert front.gate.idle_seconds >= idle
    assert front.gate.held == 0


async def test_it_is_ready_once_the_router_was_and_stays_so(front: Front) -> None:
    async def ready() -> int:
        async with front.client.get(front.state + "/readyz") as answer:
            return answer.status

    await front.opened()
    front.router.pair = False
    task = asyncio.create_task(front.post())
    await front.held(1)
    assert await ready() == 200
    front.router.pair = True
    await task


async def test_it_is_not_ready_before(front: Front) -> None:
    fresh = Gate(limit=1, max_wait=1)
    async with (
        serving(Ports(0, 0, 1), fresh, drain_seconds=1) as (_, state),
        front.client.get(f"http://127.0.0.1:{state}/readyz") as answer,
    ):
        assert answer.status == 503


async def test_what_is_being_answered_when_it_stops_is_finished(front: Front) -> None:
    router_port = int(front.router_url.rpartition(":")[2])
    stop = asyncio.Event()
    gate, url = Gate(limit=1, max_wait=1), asyncio.get_running_loop().create_future()

    async def process() -> None:
        async with serving(Ports(0, 0, router_port), gate, drain_seconds=600) as (port, _):
            url.set_result(f"http://127.0.0.1:{port}/v1/stream")
            await stop.wait()

    running = asyncio.create_task(process())
    await until(lambda: gate.latched)
    async with front.client.post(await url) as answer:
        await answer.content.readuntil(b"\n\n")
        stop.set()
        await asyncio.sleep(0)
        front.router.go_on.set()
        assert await answer.content.readuntil(b"\n\n") == b"data: 2\n\n"
    await asyncio.wait_for(running, 60)


async def test_a_router_that_stops_turns_away_whom_the_last_pods_have_left(front: Front) -> None:
    """Instead of asking a router without pods again and again for as long as it may take to stop."""
    await front.opened()
    asking = asyncio.create_task(front.post("/v1/slow"))
    await front.router.asked.wait()
    front.gate.end()
    front.router.pair = False
    front.router.go_on.set()
    status, text = await asyncio.wait_for(asking, 60)
    assert (status, "shutting down" in text) == (503, True)
