"""The HTTPS server that the API server calls; handlers are added to it."""

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web

_LARGEST_BODY = 16 * 2**20  # a review holds an object twice, and etcd's limit for one is 1.5 MiB


class TLSServer:
    """Routes behind TLS.

    Args:
        routes: What it answers.
        context: With the certificate; it may be renewed while the server runs.
    """

    def __init__(self, routes: Iterable[web.AbstractRouteDef], context: ssl.SSLContext) -> None:
        self._routes = tuple(routes)
        self._context = context
        self._leaving = False

    def leave(self) -> None:
        """From now on, close each connection after its next answer: clients go elsewhere with the one after."""
        self._leaving = True

    @asynccontextmanager
    async def serve(self, host: str, port: int, *, drain: float) -> AsyncIterator[int]:
        """Listen; the port comes back, which matters when a free one was asked for.

        Args:
            host: Address to listen on.
            port: Port to listen on.
            drain: Seconds that requests under way may take to finish in the end.
        """
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.add_routes(self._routes)
        app.on_response_prepare.append(self._say_goodbye)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=drain)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=self._context).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    async def _say_goodbye(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._leaving:
            response.force_close()
            # aiohttp has set its headers before this hook. A client that does not know of the close may lose its next
            # call, which Go's HTTP client does not repeat (a webhook is called with POST).
            response.headers["Connection"] = "close"
