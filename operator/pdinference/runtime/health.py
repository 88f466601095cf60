"""/healthz, /readyz and /metrics."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor
from pdinference.runtime.freshness import Freshness
from pdinference.runtime.watch import INACTIVITY_S

_STALL_BOUND_S = 3 * INACTIVITY_S


class Health:
    """Serves /healthz, /readyz and /metrics.

    Args:
        gauges: Further metrics, in Prometheus' text format.
        unready: Returns why the process is not ready; empty when it is.
    """

    def __init__(
        self,
        freshness: Freshness,
        metrics: Metrics,
        supervisor: Supervisor,
        *,
        gauges: Callable[[], Awaitable[str]],
        unready: Callable[[], str],
    ) -> None:
        self._gauges = gauges
        self._freshness = freshness
        self._supervisor = supervisor
        self._metrics = metrics
        self._unready = unready

    async def healthz(self, _request: web.Request) -> web.Response:
        """Liveness: the event loop responds, all background tasks run, and every watch delivers bytes or reconnects.

        It does not fail while the API server is unavailable, because a restart would not help.
        """
        if failed := self._supervisor.failed:
            return web.Response(status=503, text=f"background tasks ended: {', '.join(failed)}\n")
        stalled = self._freshness.stalled(_STALL_BOUND_S)
        if stalled:
            return web.Response(status=503, text=f"watches stalled: {', '.join(stalled)}\n")
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Readiness: the cache is filled, and calls of the API server can succeed. Followers are ready, too."""
        if reason := self._unready():
            return web.Response(status=503, text=f"{reason}\n")
        return web.Response(text="ok\n")

    async def metrics(self, _request: web.Request) -> web.Response:
        """Prometheus' text format."""
        body = generate_latest(self._metrics.registry) + (await self._gauges()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    @asynccontextmanager
    async def serve(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen; yields the port, which matters if 0 was given."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self.healthz),
                web.get("/readyz", self.readyz),
                web.get("/metrics", self.metrics),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()
