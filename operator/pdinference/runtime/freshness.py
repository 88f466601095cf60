"""The freshness of watches: when each one last delivered bytes or reconnected.

Kopf passes objects to its handlers, but not bookmarks, so handlers cannot distinguish an idle stream from a stalled
one. All of Kopf's requests use the operator's aiohttp session, which records the arrival of bytes for each stream. A
healthy stream has a bookmark about once a minute, and Kopf reconnects after 70 s of silence.

Tests: tests/runtime/test_health.py, tests/runtime/test_stream.py, tests/runtime/test_resync.py
"""

import time
from collections.abc import Callable
from typing import Any

import aiohttp

from pdinference.runtime.stream import EventStream, Take, without_objects


class Freshness:
    """Records when each watch last delivered bytes or reconnected.

    Args:
        on_listed: Called when a watch begins after a new list: the first one, or one after its watch expired.
        clock: Monotonic seconds.
    """

    def __init__(
        self, *, on_listed: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_listed = on_listed
        self._clock = clock
        self._connected: dict[str, float] = {}
        self._received: dict[str, float] = {}
        self._listed: set[str] = set()

    def connecting(self, stream: str) -> None:
        """Record that a watch connects: its task is running, even if the API server is not available."""
        self._connected[stream] = self._clock()
        if stream in self._listed:
            self._listed.remove(stream)
            self._on_listed()

    def received(self, stream: str) -> None:
        """Record that bytes arrived."""
        self._received[stream] = self._connected[stream] = self._clock()

    def listed(self, stream: str) -> None:
        """Record a list: the first one, or one after an expired watch. The next watch ends it."""
        self._listed.add(stream)

    def stalled(self, bound: float) -> list[str]:
        """Streams that neither delivered bytes nor reconnected within `bound` seconds; they need a restart."""
        now = self._clock()
        return sorted(stream for stream, at in self._connected.items() if now - at > bound)

    def silent(self, bound: float) -> list[str]:
        """Streams that delivered no bytes within `bound` seconds, for example because the API server is unavailable."""
        now = self._clock()
        return sorted(stream for stream in self._connected if now - self._received.get(stream, 0.0) > bound)


def trace(freshness: Freshness) -> aiohttp.TraceConfig:
    """Trace configuration that records lists and connections of watches."""
    config = aiohttp.TraceConfig()

    async def on_start(_session: Any, _context: Any, params: aiohttp.TraceRequestStartParams) -> None:
        if "watch" in params.url.query:
            freshness.connecting(params.url.path)
        else:
            freshness.listed(params.url.path)

    config.on_request_start.append(on_start)
    return config


def response_class(
    freshness: Freshness, taker: Callable[[str], Take | None] = lambda _: None
) -> type[aiohttp.ClientResponse]:
    """A response class that records the bytes of watches, takes their objects, and leaves Kopf resource versions.

    Args:
        freshness: Records the arrival of bytes.
        taker: Returns the consumer of the objects of the watch at a path; None leaves them to Kopf.
    """

    class WatchedResponse(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            response = await super().start(connection)
            if "watch" in self.url.query:
                stream = self.url.path
                freshness.received(stream)
                self.content = EventStream(  # type: ignore[assignment]
                    self.content, stream, lambda: freshness.received(stream), taker(stream)
                )
            return response

        async def json(self, **options: Any) -> Any:
            if "limit" in self.url.query and self.ok:
                return await without_objects(await self.read())
            return await super().json(**options)

    return WatchedResponse
