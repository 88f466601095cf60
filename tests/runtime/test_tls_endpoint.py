"""On termination, calls of the API server are still answered, and its connections move to other replicas."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import aiohttp
import pytest
from aiohttp import web

from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor
from pdinference.runtime.settings import OperatorSettings, TLSSettings
from pdinference.runtime.tls_endpoint import TlsEndpoint
from tests.cluster.fake_api import FakeApi

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer

LONG = 3600.0
"""Seconds that no test waits for."""


class Service:
    """The HTTPS side of a process, and a client that keeps its connections, as the API server does."""

    def __init__(self, caplog: pytest.LogCaptureFixture, *, drain_seconds: float) -> None:
        self.connections: set[object] = set()
        self.entered, self.released = asyncio.Event(), asyncio.Event()
        self._caplog = caplog
        api = FakeApi()
        api.put("/api/v1/namespaces/ours/secrets/tls", {"apiVersion": "v1", "kind": "Secret"})
        tls = TLSSettings(port=0, hosts=("localhost",), secret="tls", drain_seconds=drain_seconds)  # noqa: S106 - a name
        settings = OperatorSettings(tls=tls, lease_namespace="ours", bind_address="127.0.0.1")
        routes = [web.get("/", self._answer), web.get("/slow", self._answer_late)]
        self.tls_endpoint = TlsEndpoint(settings, cast("ApiServer", api), Supervisor(Metrics()), routes)

    async def _answer(self, request: web.Request) -> web.Response:
        self.connections.add(request.transport)
        return web.Response(text="allowed")

    async def _answer_late(self, _: web.Request) -> web.Response:
        self.entered.set()
        await self.released.wait()
        return web.Response(text="allowed")

    @asynccontextmanager
    async def client(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A client of a server that has its certificate and listens."""
        listens = re.compile(r"Serving HTTPS on port (\d+)")
        while not (self.tls_endpoint.ready and listens.search(self._caplog.text)):  # noqa: ASYNC110
            await asyncio.sleep(0)  # what is waited for is in this loop
        (port,) = listens.findall(self._caplog.text)
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(f"https://localhost:{port}", connector=connector) as session:
            yield session


async def closes(session: aiohttp.ClientSession) -> bool:
    """Make a call that has to be answered; whether the server closes its connection after it."""
    async with session.get("/") as response:
        assert (response.status, await response.text()) == (200, "allowed")
        return response.headers.get("Connection") == "close"


async def refused(session: aiohttp.ClientSession) -> None:
    """Return when the server does not listen any more."""
    while True:
        try:
            await closes(session)
        except aiohttp.ClientConnectorError:
            return


async def test_calls_are_answered_while_the_process_drains(caplog: pytest.LogCaptureFixture) -> None:
    """The news that it stops travels meanwhile: the API server uses its connections, and opens new ones."""
    caplog.set_level("INFO")
    service = Service(caplog, drain_seconds=LONG)
    async with service.tls_endpoint.serve(), service.client() as session, service.client() as late:
        assert [await closes(session) for _ in range(3)] == [False] * 3
        assert len(service.connections) == 1
        draining = asyncio.create_task(service.tls_endpoint.drain())
        await asyncio.sleep(0)
        assert await closes(session), "the API server would send its next call to a server that is gone"
        assert await closes(session)
        assert await closes(late)
        assert len(service.connections) == 3
        assert not draining.done(), "the server would be gone before the news of it has travelled"
        draining.cancel()


async def test_the_process_drains_for_as_long_as_it_is_set_to(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    service = Service(caplog, drain_seconds=0.2)
    async with service.tls_endpoint.serve(), service.client():
        begin = asyncio.get_running_loop().time()
        await service.tls_endpoint.drain()
        assert asyncio.get_running_loop().time() - begin >= 0.2


async def test_calls_under_way_when_the_server_ends_are_finished(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    service = Service(caplog, drain_seconds=LONG)
    stop = asyncio.Event()

    async def serve() -> None:
        async with service.tls_endpoint.serve():
            await stop.wait()

    serving = asyncio.create_task(serve())
    async with service.client() as session:
        call = asyncio.create_task(session.get("/slow"))
        await service.entered.wait()
        stop.set()
        await refused(session)
        service.released.set()
        async with await call as response:
            assert (response.status, await response.text()) == (200, "allowed")
    await serving


async def test_without_a_server_there_is_nothing_to_drain() -> None:
    tls_endpoint = TlsEndpoint(OperatorSettings(), cast("ApiServer", FakeApi()), Supervisor(Metrics()), [])
    async with tls_endpoint.serve():
        await tls_endpoint.drain()
