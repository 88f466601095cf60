"""The HTTPS server that the API server calls.

Tests: tests/runtime/test_tls_endpoint.py, tests/serving/test_callers.py
"""

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web

_LARGEST_BODY = 16 * 2**20  # a review contains an object twice, and etcd's limit for one is 1.5 MiB


class TLSServer:
    """Serves routes over TLS.

    Args:
        routes: The routes.
        context: TLS context; its certificate may be renewed while the server runs.
    """

    def __init__(self, routes: Iterable[web.AbstractRouteDef], context: ssl.SSLContext) -> None:
        self._routes = tuple(routes)
        self._context = context
        self._leaving = False

    def leave(self) -> None:
        """From now on, close each connection after its next response, so that clients connect to another replica."""
        self._leaving = True

    @asynccontextmanager
    async def serve(self, host: str, port: int, *, drain: float) -> AsyncIterator[int]:
        """Listen; yields the port, which matters if 0 was given.

        Args:
            host: Address to listen on.
            port: Port to listen on.
            drain: Seconds that requests in progress may take to finish at the end.
        """
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.add_routes(self._routes)
        app.on_response_prepare.append(self._close_when_leaving)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=drain)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=self._context).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    async def _close_when_leaving(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._leaving:
            response.force_close()
            # aiohttp has set its headers before this hook. Without the header, a client may send its next request on
            # the closed connection. Go's HTTP client does not retry it, because webhooks are called with POST.
            response.headers["Connection"] = "close"
