"""Reads the bodies of requests, within limits for each and for all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from pdinference.router.calls import MalformedError


class FullError(Exception):
    """The router has as many requests, or as many bytes of them, as it may have."""


class Bodies:
    """The bodies that are held. A body is held until its answer ends, because another pod may need it.

    Args:
        longest: Bytes of one.
        most: Bytes of all.
        seconds: Time until a body has come.

    Attributes:
        held: Bytes that are held now.
    """

    def __init__(self, *, longest: int, most: int, seconds: float) -> None:
        self._longest = longest
        self._most = most
        self._seconds = seconds
        self.held = 0

    @asynccontextmanager
    async def body(self, request: web.Request) -> AsyncIterator[bytes]:
        """The body of a request, for the time of the block.

        Raises:
            MalformedError: It is compressed, too long, not correct HTTP, or did not come in time.
            FullError: There are too many bytes of other requests.
        """
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise MalformedError("A compressed body is not supported.", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if (request.content_length or 0) > self._longest:
            raise self._too_long()
        chunks: list[bytes] = []
        length = 0
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    async for chunk in request.content.iter_any():
                        length += len(chunk)
                        self.held += len(chunk)
                        if length > self._longest:
                            raise self._too_long()
                        if self.held > self._most:
                            raise FullError
                        chunks.append(chunk)
            except web.RequestPayloadError as error:
                raise MalformedError(f"The body is not what its headers say: {error}") from None
            except TimeoutError:
                message = f"The body did not come within {self._seconds:g} s."
                raise MalformedError(message, HTTPStatus.REQUEST_TIMEOUT) from None
            body = b"".join(chunks)
            chunks.clear()  # or each body would be held twice
            yield body
        finally:
            self.held -= length

    def _too_long(self) -> MalformedError:
        return MalformedError(f"The body is longer than {self._longest} bytes.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
