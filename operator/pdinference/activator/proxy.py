"""Forwards requests to the router as soon as it can answer them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from pdinference.activator.gate import Gate, TurnedAwayError

_ASLEEP: Final = 503
_REPEATABLE: Final = 2**18
"""Maximum size, in bytes, of bodies that are buffered until the router accepts them, so that they can be resent.

Larger bodies wait unread. They are sent only after a new check of the router's readiness.
"""
_PASSIVE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods without work for the model. They neither wake it nor keep it awake."""
_RETRY_AFTER_S: Final = 10
_PERIOD_S: Final = 0.5
_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Proxy:
    """Proxy between the Service and the router.

    Args:
        url: URL of the router, without a path.
    """

    def __init__(self, gate: Gate, session: aiohttp.ClientSession, url: str) -> None:
        self._gate = gate
        self._session = session
        self._url = url

    async def watch(self) -> None:
        """Check the readiness of the router until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(_PERIOD_S)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle a request."""
        try:
            if request.method in _PASSIVE_METHODS:
                return await self._relay(request, await self._sent(request, b""))
            with self._gate.request() as until:
                return await self._answered(request, until)
        except TurnedAwayError as error:
            return _refusal(error.status, str(error))
        except aiohttp.ClientConnectorError:
            return _refusal(_ASLEEP, "The router does not accept connections yet.")
        except aiohttp.ClientError as error:
            return _refusal(502, f"The connection to the router failed: {error or type(error).__name__}")

    async def _answered(self, request: web.Request, until: float) -> web.StreamResponse:
        length = request.content_length
        body = await request.read() if length is not None and length <= _REPEATABLE else None
        while True:
            await self._gate.passed(until)
            if body is None and not await self._look():
                continue
            try:
                answer = await self._sent(request, body)
            except aiohttp.ClientConnectorError:
                if body is None:
                    raise
                self._gate.set(opened=False)
                continue
            # The last pods may have terminated since the readiness check. Then the request waits for new pods.
            if answer.status == _ASLEEP and not await self._look():
                answer.release()
                if body is None:
                    raise TurnedAwayError(
                        _ASLEEP, "The last pods have terminated. Retry the request to start new pods."
                    )
                continue
            return await self._relay(request, answer)

    async def _sent(self, request: web.Request, body: bytes | None) -> aiohttp.ClientResponse:
        headers = _end_to_end(request.headers)
        if body is not None:
            headers.popall("Content-Length", None)
        return await self._session.request(
            request.method,
            self._url + request.raw_path,
            headers=headers,
            data=body if body is not None else _chunks(request),
            allow_redirects=False,
        )

    async def _look(self) -> bool:
        """Check whether the router has a P pod and a D pod."""
        try:
            async with self._session.get(f"{self._url}/readiness", timeout=aiohttp.ClientTimeout(total=5)) as answer:
                opened = answer.ok
        except (aiohttp.ClientError, OSError, TimeoutError):
            opened = False
        self._gate.set(opened=opened)
        return opened

    @staticmethod
    async def _relay(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Stream a response to the client."""
        async with answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            response.headers.extend(_end_to_end(answer.headers))
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            except aiohttp.ClientError:
                # The headers are already sent, so only an aborted connection signals the error to the client.
                if request.transport is not None:
                    request.transport.abort()
                return response
            await response.write_eof()
            return response


async def _chunks(request: web.Request) -> AsyncIterator[bytes]:
    async for chunk in request.content.iter_any():
        yield chunk


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The end-to-end headers (RFC 9110, section 7.6.1)."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP)


def _refusal(status: int, message: str) -> web.Response:
    """An error response in the form of OpenAI's API."""
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if status == _ASLEEP else {}
    body = {"error": {"message": message, "type": "service_unavailable", "code": status}}
    return web.json_response(body, status=status, headers=headers)
