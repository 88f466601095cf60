"""Reads the bodies of requests, within limits for each, for each client and for all.

Tests: tests/router/test_door.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from aiohttp import web

from pdinference.router.calls import MalformedError
from pdinference.router.room import Holding, Room

_BEGIN_S: Final = 10.0
_SLOWEST: Final = 16 * 2**10
"""Bytes per second. Who is slower holds room for less than it is worth."""


class Bodies:
    """The bodies that are held. A body is held until its answer ends, because another pod may need it.

    Args:
        longest: Bytes of one.
        room: For all of them.
        seconds: Time until a body has come, beside the time that it waits for room.
    """

    def __init__(self, *, longest: int, room: Room, seconds: float) -> None:
        self._longest = min(longest, room.largest)
        self._room = room
        self._seconds = seconds

    @asynccontextmanager
    async def body(self, request: web.Request, client: str) -> AsyncIterator[bytes]:
        """The body of a request, for the time of the block.

        Args:
            request: The request.
            client: Whose it is.

        Raises:
            MalformedError: It is compressed, too long, not correct HTTP, or did not come in time.
            FullError: There are too many bytes of other requests.
        """
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise MalformedError("A compressed body is not supported.", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if (request.content_length or 0) > self._longest:
            raise self._too_long()
        async with self._room.holding(client) as held:
            await held.grow(request.content_length or 0)  # before its first byte: bodies must not wait half held
            yield await self._read(request, held)

    async def _read(self, request: web.Request, held: Holding) -> bytes:
        found = bytearray()
        began = _now()
        while chunk := await self._next(request, len(found), began):
            if len(found) + len(chunk) > self._longest:
                raise self._too_long()
            found += chunk
            if len(found) > held.bytes:
                asked = _now()
                await held.grow(len(found) - held.bytes)
                began += _now() - asked
        return bytes(found)

    async def _next(self, request: web.Request, length: int, began: float) -> bytes:
        """The next bytes; none at the end."""
        seconds = min(self._seconds, _BEGIN_S + length / _SLOWEST)
        try:
            async with asyncio.timeout_at(began + seconds):
                return await request.content.readany()
        except web.RequestPayloadError as error:
            raise MalformedError(f"The body is not what its headers say: {error}") from None
        except TimeoutError:
            message = f"The body came too slowly: {length} bytes in {seconds:g} s."
            raise MalformedError(message, HTTPStatus.REQUEST_TIMEOUT) from None

    def _too_long(self) -> MalformedError:
        return MalformedError(f"The body is longer than {self._longest} bytes.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def _now() -> float:
    return asyncio.get_running_loop().time()
