"""Passes requests on to the router, as soon as it can answer them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from pdinference.activator.gate import Gate, TurnedAwayError

_ASLEEP: Final = 503
_REPEATABLE: Final = 2**18
"""Bytes of a body that is kept until the router has taken it, so that it can be sent again.

Longer ones wait unread, and are sent only after another look at whether there are pods.
"""
_LOOKS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""They ask nothing of the model: they neither wake it nor keep it awake."""
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
    """Between the Service and the router.

    Args:
        url: Of the router, without a path.
    """

    def __init__(self, gate: Gate, session: aiohttp.ClientSession, url: str) -> None:
        self._gate = gate
        self._session = session
        self._url = url

    async def watch(self) -> None:
        """Follow, for ever, whether the router can answer."""
        while True:
            await self._look()
            await asyncio.sleep(_PERIOD_S)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        try:
            if request.method in _LOOKS:
                return await self._relay(request, await self._sent(request, b""))
            with self._gate.request() as until:
                return await self._answered(request, until)
        except TurnedAwayError as error:
            return _refusal(error.status, str(error))
        except aiohttp.ClientConnectorError:
            return _refusal(_ASLEEP, "The router does not answer yet.")
        except aiohttp.ClientError as error:
            return _refusal(502, f"The router broke the connection off: {error or type(error).__name__}")

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
            # The last pods may have gone since somebody looked: then the request waits for new ones.
            if answer.status == _ASLEEP and not await self._look():
                answer.release()
                if body is None:
                    raise TurnedAwayError(_ASLEEP, "The last pods have just gone; ask again, and others start.")
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
        """Whether the router has a P and a D pod."""
        try:
            async with self._session.get(f"{self._url}/readiness", timeout=aiohttp.ClientTimeout(total=5)) as answer:
                opened = answer.ok
        except (aiohttp.ClientError, OSError, TimeoutError):
            opened = False
        self._gate.set(opened=opened)
        return opened

    @staticmethod
    async def _relay(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Pass an answer on as it comes."""
        async with answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            response.headers.extend(_end_to_end(answer.headers))
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            except aiohttp.ClientError:
                # What came so far looks like an answer; only a broken connection says that it is none.
                if request.transport is not None:
                    request.transport.abort()
                return response
            await response.write_eof()
            return response


async def _chunks(request: web.Request) -> AsyncIterator[bytes]:
    async for chunk in request.content.iter_any():
        yield chunk


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The headers that are not about one connection."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP)


def _refusal(status: int, message: str) -> web.Response:
    """As OpenAI's API writes errors."""
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if status == _ASLEEP else {}
    body = {"error": {"message": message, "type": "service_unavailable", "code": status}}
    return web.json_response(body, status=status, headers=headers)
