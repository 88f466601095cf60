"""Rewrites Kopf's responses: lists without objects, and bookmarks in place of objects.

Kopf parses a list page or a watch line as a whole, and fails if one object is nested too deeply. The operator's own
list follows each new watch (`resync`) and bounds each object. So Kopf needs only resource versions of lists and
watches.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
import msgspec

from pdinference.api import names
from pdinference.cluster.objects import LARGE, OBJECT_EVENTS, Json, shallow, watch_event

_LOG = logging.getLogger(__name__)
_INLINE: Final = LARGE // 4
_LONGEST_LINE: Final = 32 * 2**20

Take = Callable[[Json, bool], None]


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")


class _List(msgspec.Struct):
    metadata: _Metadata


async def without_objects(body: bytes) -> Json:
    """The list without its objects, only with its resource version."""
    try:
        found = msgspec.json.decode(body, type=_List)
    except RecursionError:
        found = msgspec.json.decode(await asyncio.to_thread(shallow, body), type=_List)
    return {"metadata": {"resourceVersion": found.metadata.version}, "items": []}


class EventStream:
    """The body of a watch. Objects are taken here, and Kopf reads a bookmark in the place of each.

    A bookmark is all that Kopf needs to go on from the right version when it reconnects. Its own way from an event to a
    handler takes 0.1 s, in which it waits for more events of the object, and a third of the operator's CPU time.

    Args:
        reader: The response's content.
        path: URL path of the watched list.
        on_bytes: Called for each chunk.
        take: Called with each object, and whether it was deleted; None to leave all events to Kopf.
    """

    def __init__(self, reader: Any, path: str, on_bytes: Callable[[], None], take: Take | None) -> None:
        self._reader = reader
        self._own = f"/{names.GROUP}/" in path
        self._on_bytes = on_bytes
        self._take = take

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield complete lines."""
        begun = bytearray()
        async for chunk in self._reader.iter_chunked(size):
            self._on_bytes()
            begun += chunk
            if b"\n" in chunk:
                *lines, rest = begun.split(b"\n")
                begun = rest
                for line in lines:
                    yield await self._taken(bytes(line))
            if len(begun) > _LONGEST_LINE:
                raise aiohttp.ClientPayloadError("an event of a watch is too long")
        if begun:
            yield await self._taken(bytes(begun))

    async def _taken(self, line: bytes) -> bytes:
        """The line for Kopf in place of this one."""
        if self._take is None or not line:
            return line + b"\n"
        try:
            if len(line) <= _INLINE:
                event, body = watch_event(line, self._own)
            else:
                event, body = await asyncio.to_thread(watch_event, line, self._own)
            if event not in OBJECT_EVENTS:
                return line + b"\n"
            bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": _version(body)}}}
            self._take(body, event == "DELETED")
            return msgspec.json.encode(bookmark) + b"\n"
        except Exception:  # noqa: BLE001 - one object must not end the watch of all
            _LOG.exception("Skipping a watch event that cannot be read")
            return b"\n"


def _version(body: Json) -> str:
    version: str = body["metadata"]["resourceVersion"]
    return version
