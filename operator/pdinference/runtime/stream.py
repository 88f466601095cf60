"""Rewrites Kopf's responses: lists without objects, and watch events that any parser can read.

Kopf parses a list page or a watch line as a whole, and fails if one object is nested too deeply. The operator's own
list follows each new watch (`resync`) and bounds each object. So Kopf needs only the resource version of a list.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
import msgspec

from pdinference.api import names
from pdinference.cluster.objects import LARGE, readable_event, shallow

_LOG = logging.getLogger(__name__)
_OK: Final = 200
_INLINE: Final = LARGE // 4
_LONGEST_LINE: Final = 32 * 2**20


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")


class _List(msgspec.Struct):
    metadata: _Metadata


async def without_objects(body: bytes) -> bytes:
    """The list without its objects, only with its resource version."""
    try:
        found = msgspec.json.decode(body, type=_List)
    except RecursionError:
        found = msgspec.json.decode(await asyncio.to_thread(shallow, body), type=_List)
    return msgspec.json.encode({"metadata": {"resourceVersion": found.metadata.version}, "items": []})


class EventStream:
    """The body of a watch, line by line, as Kopf reads it.

    Args:
        reader: The response's content.
        path: URL path of the watched list.
        on_bytes: Called for each chunk.
    """

    def __init__(self, reader: Any, path: str, on_bytes: Callable[[], None]) -> None:
        self._reader = reader
        self._own = f"/{names.GROUP}/" in path
        self._on_bytes = on_bytes

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
                    yield await self._readable(bytes(line))
            if len(begun) > _LONGEST_LINE:
                raise aiohttp.ClientPayloadError("an event of a watch is too long")
        if begun:
            yield await self._readable(bytes(begun))

    async def _readable(self, line: bytes) -> bytes:
        try:
            if len(line) <= _INLINE:
                return readable_event(line, self._own) + b"\n"
            return await asyncio.to_thread(readable_event, line, self._own) + b"\n"
        except (msgspec.DecodeError, KeyError, RecursionError):
            _LOG.exception("Skipping a watch event that cannot be read")
            return b"\n"
