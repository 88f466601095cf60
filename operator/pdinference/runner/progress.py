"""Progress of the runner: metrics during the run, and the container's termination message.

Tests: tests/runner/test_run.py, tests/batch/test_progress.py
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

from pdinference.api.names import METRIC_BATCH_REQUESTS
from pdinference.api.plain_text import plain

_LONGEST_MESSAGE = 1900
"""Maximum length of the message. With every character escaped, it fits the kubelet's limit (4,096 bytes)."""


@dataclass
class RunProgress:
    """Counts of requests. A request counts when its line is stored."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        gauge = Gauge(METRIC_BATCH_REQUESTS, "Requests of the batch, by state.", ["state"], registry=self.registry)
        gauge.labels("total").set_function(lambda: self.total)
        gauge.labels("completed").set_function(lambda: self.completed)
        gauge.labels("failed").set_function(lambda: self.failed)

    def report(self, message: str) -> str:
        """The termination message, which the operator reads from the pod's status."""
        counts = {"total": self.total, "completed": self.completed, "failed": self.failed}
        text = plain(message, _LONGEST_MESSAGE).encode()[:_LONGEST_MESSAGE].decode(errors="ignore")
        return json.dumps({**counts, "message": text}, ensure_ascii=False)

    @asynccontextmanager
    async def served(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve /metrics during the run. Yields the port, which matters if 0 was given."""
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics)])
        server = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await server.setup()
        try:
            await web.TCPSite(server, host, port).start()
            yield server.addresses[0][1]
        finally:
            await server.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
