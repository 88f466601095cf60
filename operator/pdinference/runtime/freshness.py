"""How alive the watches are.

Kopf tells its handlers of objects, not of bookmarks, so a quiet stream and a stalled one look the same to them. But all
of Kopf's traffic goes through an aiohttp session that we give it. So each stream's bytes are noticed here: bookmarks
come about once a minute on a healthy stream, and Kopf reconnects one that was silent for 70 s.
"""

import time
from collections.abc import Callable
from typing import Any

import aiohttp

from pdinference.runtime.stream import EventStream, Take, without_objects


class Freshness:
    """When each watch last showed life.

    Args:
        on_listed: Called when a stream watches from a new list on: its first one, or the one after its watch expired.
        clock: Monotonic seconds.
    """

    def __init__(
        self, *, on_listed: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_listed = on_listed
        self._clock = clock
        self._tried: dict[str, float] = {}
        self._heard: dict[str, float] = {}
        self._listed: set[str] = set()

    def tried(self, stream: str) -> None:
        """A watch (re)connects: whoever runs it is alive, even if the API server is not."""
        self._tried[stream] = self._clock()
        if stream in self._listed:
            self._listed.remove(stream)
            self._on_listed()

    def heard(self, stream: str) -> None:
        """Bytes arrived."""
        self._heard[stream] = self._tried[stream] = self._clock()

    def listed(self, stream: str) -> None:
        """A list instead of a watch: the first one, or a new start. It is over when the watch from there begins."""
        self._listed.add(stream)

    def stalled(self, bound: float) -> list[str]:
        """Streams that neither delivered nor reconnected within `bound` seconds: only a restart cures those."""
        now = self._clock()
        return sorted(stream for stream, at in self._tried.items() if now - at > bound)

    def silent(self, bound: float) -> list[str]:
        """Streams that delivered nothing within `bound` seconds, for example because the API server is away."""
        now = self._clock()
        return sorted(stream for stream in self._tried if now - self._heard.get(stream, 0.0) > bound)


def trace(freshness: Freshness) -> aiohttp.TraceConfig:
    """Notices when a watch connects."""
    config = aiohttp.TraceConfig()

    async def on_start(_session: Any, _context: Any, params: aiohttp.TraceRequestStartParams) -> None:
        if "watch" in params.url.query:
            freshness.tried(params.url.path)
        else:
            freshness.listed(params.url.path)

    config.on_request_start.append(on_start)
    return config


def response_class(
    freshness: Freshness, taker: Callable[[str], Take | None] = lambda _: None
) -> type[aiohttp.ClientResponse]:
    """A response that notices the bytes of a watch as they arrive, takes its objects, and leaves Kopf the versions.

    Args:
        freshness: Where the bytes are noticed.
        taker: What to do with the objects of the watch at this path; None to leave them to Kopf.
    """

    class WatchedResponse(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            response = await super().start(connection)
            if "watch" in self.url.query:
                stream = self.url.path
                freshness.heard(stream)
                self.content = EventStream(  # type: ignore[assignment]
                    self.content, stream, lambda: freshness.heard(stream), taker(stream)
                )
            return response

        async def read(self) -> bytes:
            first = self._body is None
            body = await super().read()
            if first and "limit" in self.url.query and self.ok:
                self._body = body = await without_objects(body)
            return body

    return WatchedResponse
