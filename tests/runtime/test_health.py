"""/healthz distinguishes a stalled watch from an unreachable API server; /readyz waits for the first complete list."""

import asyncio

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor
from pdinference.runtime.freshness import Freshness, response_class, trace
from pdinference.runtime.health import Health


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def no_gauges() -> str:
    return ""


def made(freshness: Freshness, unready: str = "") -> Health:
    metrics = Metrics()
    return Health(freshness, metrics, Supervisor(metrics), gauges=no_gauges, unready=lambda: unready)


async def status(health: Health, path: str) -> int:
    async with (
        health.serve("127.0.0.1", 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status


@pytest.mark.parametrize(("silence", "expected"), [(150, 200), (300, 503)])
async def test_a_watch_that_neither_delivers_nor_reconnects_is_not_healthy(silence: float, expected: int) -> None:
    """Kopf may miss a reconnection once, as it waits up to 30 s between tries; after five minutes it is stuck."""
    clock = Clock()
    freshness = Freshness(clock=clock)
    freshness.received("/api/v1/pods")
    clock.now = silence
    assert await status(made(freshness), "/healthz") == expected


async def test_a_watch_that_tries_to_reconnect_is_healthy() -> None:
    clock = Clock()
    freshness = Freshness(clock=clock)
    freshness.received("/api/v1/pods")
    clock.now = 1000
    freshness.connecting("/api/v1/pods")
    assert await status(made(freshness), "/healthz") == 200
    assert freshness.silent(500) == ["/api/v1/pods"]


@pytest.mark.parametrize(("reason", "expected"), [("", 200), ("the first list is not complete", 503)])
async def test_ready_means_that_nothing_is_missing(reason: str, expected: int) -> None:
    assert await status(made(Freshness(), reason), "/readyz") == expected


async def test_metrics_are_served() -> None:
    assert await status(made(Freshness()), "/metrics") == 200


async def test_a_background_task_that_ended_is_not_healthy() -> None:
    async def fails() -> None:
        raise RuntimeError("a bug")

    metrics = Metrics()
    supervisor = Supervisor(metrics)
    health = Health(Freshness(), metrics, supervisor, gauges=no_gauges, unready=lambda: "")
    assert await status(health, "/healthz") == 200
    await asyncio.wait({supervisor.start("scraper", fails())})
    assert await status(health, "/healthz") == 503
    assert await status(health, "/readyz") == 200


async def test_bytes_of_a_watch_and_new_lists_are_noticed() -> None:
    """As Kopf reads: a list, a watch from there on, the same again when it ended, a list again when it expired."""
    begun: list[bool] = []
    freshness = Freshness(on_listed=lambda: begun.append(True))

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(stream, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/v1/pods"
    async with (
        server,
        aiohttp.ClientSession(trace_configs=[trace(freshness)], response_class=response_class(freshness)) as session,
    ):
        for lists in (1, 2):
            for _ in ("page", "page"):
                await (await session.get(url)).read()
                assert len(begun) == lists - 1, "what is deleted before the list is over is told by nobody"
            for _ in ("watch", "reconnected"):
                async with session.get(url, params={"watch": "true"}) as response:
                    assert [chunk async for chunk in response.content.iter_chunked(1024)] == [b"{}\n"]
                assert freshness.silent(60) == []
                assert len(begun) == lists


async def test_metrics_has_own_metrics_and_gauges_of_signals() -> None:
    async def gauges() -> str:
        return "# TYPE pdinference_decode_load gauge\npdinference_decode_load 0.5\n"

    metrics = Metrics()
    health = Health(Freshness(), metrics, Supervisor(metrics), gauges=gauges, unready=lambda: "")
    async with (
        health.serve("127.0.0.1", 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as response,
    ):
        families = {family.name: family for family in text_string_to_metric_families(await response.text())}
    assert families["pdinference_decode_load"].samples[0].value == 0.5
    assert "pdinference_is_leader" in families
