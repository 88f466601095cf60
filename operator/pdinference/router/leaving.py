"""The connections of clients while the process ends. A client may send a request on each until it is told not to."""

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

LEAVE_S: Final = 3.0
"""Time in which clients with a connection that is kept open learn to open another one, which goes to another pod."""
_LOOK_S: Final = 0.1


class Leaving:
    """Closes each connection after a response that says so: `Connection: close`.

    The headers of a stream may have been sent before the process was told to end. Its connection is kept open for one
    more request, whose response says so.

    Attributes:
        begun: Whether the process ends.
    """

    def __init__(self) -> None:
        self.begun = False
        self._running = 0
        self._ended_at: dict[web.RequestHandler, float] = {}

    @property
    def middleware(self) -> Middleware:
        """Follows the requests on each connection."""

        @web.middleware
        async def followed(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._running += 1
            try:
                return await handler(request)
            finally:
                self._running -= 1
                if self.begun:
                    self._ended_at[request.protocol] = asyncio.get_running_loop().time()

        return followed

    async def mark(self, _request: web.Request, response: web.StreamResponse) -> None:
        """Let a response say that its connection is closed after it."""
        if self.begun:
            response.force_close()
            # aiohttp has set its headers before this hook. A client that does not see it may send its next request on
            # the connection that is being closed.
            response.headers["Connection"] = "close"

    async def last_requests(self, clients: web.AppRunner, seconds: float) -> None:
        """Refuse new connections, and wait for the last requests on those that are open.

        Args:
            clients: The server.
            seconds: Time for that.
        """
        now = asyncio.get_running_loop().time
        until = now() + seconds
        for site in list(clients.sites):
            await site.stop()
        while self.begun and self._is_needed() and now() < until:  # noqa: ASYNC110 - connections close by themselves
            await asyncio.sleep(_LOOK_S)
        if self.begun and clients.server is not None:
            for connection in clients.server.connections:
                connection.force_close()

    def _is_needed(self) -> bool:
        """Whether a request is under way, or may come: the last response did not say that the connection is closed."""
        since = asyncio.get_running_loop().time() - LEAVE_S
        open_ones = (at for connection, at in self._ended_at.items() if connection.transport is not None)
        return self._running > 0 or any(at > since for at in open_ones)
