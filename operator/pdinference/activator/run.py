"""The activator's process."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

from pdinference.activator.gate import Gate
from pdinference.activator.proxy import Proxy
from pdinference.api.names import METRIC_HELD_REQUESTS, METRIC_IDLE_SECONDS

_UNASKED: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add. Without this, clients that do not accept gzip could get it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of requests, of the activator's state, and of the router.

    Attributes:
        host: Address to listen on.
    """

    requests: int
    state: int
    router: int
    host: str = "127.0.0.1"
    router_host: str = "127.0.0.1"


async def run(ports: Ports, gate: Gate, *, drain_seconds: float) -> None:
    """Queue and forward requests until SIGTERM or SIGINT, then finish the running requests."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(ports, gate, drain_seconds=drain_seconds):
        await stop.wait()


@asynccontextmanager
async def serving(ports: Ports, gate: Gate, *, drain_seconds: float) -> AsyncIterator[tuple[int, int]]:
    """Serve until the end of the block. Yields the ports, for callers that passed port 0."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, trust_env=False, skip_auto_headers=_UNASKED
    ) as session:
        proxy = Proxy(gate, session, f"http://{ports.router_host}:{ports.router}")
        watching = asyncio.create_task(proxy.watch(), name="watch")
        state = await _server(_state(gate), ports.host, ports.state, drain_seconds=1)
        requests = web.Application()
        requests.router.add_route("*", "/{path:.*}", proxy.handle)
        front = await _server(requests, ports.host, ports.requests, drain_seconds=drain_seconds)
        try:
            yield front.addresses[0][1], state.addresses[0][1]
        finally:
            gate.end()
            await front.cleanup()
            await state.cleanup()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def _server(app: web.Application, host: str, port: int, *, drain_seconds: float) -> web.AppRunner:
    # If a client disconnects, its request leaves the queue or is cancelled at vLLM.
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=drain_seconds, auto_decompress=False
    )
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner


def _state(gate: Gate) -> web.Application:
    registry = CollectorRegistry()
    held = Gauge(METRIC_HELD_REQUESTS, "Requests that wait for P and D to start.", registry=registry)
    held.set_function(lambda: gate.held)
    idle = Gauge(METRIC_IDLE_SECONDS, "Seconds since the last request; 0 during requests.", registry=registry)
    idle.set_function(lambda: gate.idle_seconds)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_request: web.Request) -> web.Response:
        if gate.latched:
            return web.Response(text="ok")
        return web.Response(text="The router has not had a P pod and a D pod yet.", status=503)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthy), web.get("/readyz", ready)])
    return app
