"""Connections of clients: limits that hold before a request has come and a key is checked.

aiohttp limits the single header, but neither a head as a whole, nor the time that it takes, nor the connections. It
answers what is no correct HTTP in plain text.
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast
from uuid import uuid4

import msgspec
from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import LineTooLong

from pdinference.router.calls import REQUEST_ID
from pdinference.router.errors import problem
from pdinference.router.room import FullError, Shares, owner_of

_PIECE: Final = 16 * 2**10
"""Bytes that the parser gets at a time. What it has of the next head beside a whole request is not counted."""
_MOST_HEADERS: Final = 128
_BUFFER: Final = 64 * 2**10
"""Half of the bytes of a body that are read before the router wants them."""
_HANDSHAKE_S: Final = 10.0
_LINGER_S: Final = 1.0
_JSON: Final = "application/json; charset=utf-8"
_TOO_LONG: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a port.

    Attributes:
        connections: Connections at a time.
        head: Bytes of a request line and its headers.
        heads: Bytes of all that are not complete.
        head_seconds: Time from the first byte of a head to its last one.
        idle_seconds: Time between two requests.
    """

    connections: int = 6000
    head: int = 32 * 2**10
    heads: int = 8 * 2**20
    head_seconds: float = 10.0
    idle_seconds: float = 75.0


@dataclass(slots=True)
class Connections:
    """What the connections of a port share.

    Attributes:
        places: The connections.
        heads: Bytes of heads that are not complete.
    """

    limits: ConnectionLimits
    places: Shares = field(init=False)
    heads: Shares = field(init=False)

    def __post_init__(self) -> None:
        self.places = Shares(self.limits.connections)
        self.heads = Shares(self.limits.heads)


class ClientConnection(web.RequestHandler):
    """One connection.

    It relies on inner names of aiohttp's class: `_messages`, the parsed requests that wait; `_request_count`, how many
    were parsed; `_current_request`; `_close` and `_force_close`, after which nothing more is read.

    Args:
        server: aiohttp's server.
        shared: What connections share.
        more: Further arguments of aiohttp's class.
    """

    def __init__(self, server: web.Server, shared: Connections, **more: Any) -> None:
        limits = shared.limits
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.head,
            max_field_size=limits.head,
            max_headers=_MOST_HEADERS,
            read_bufsize=_BUFFER,
            auto_decompress=False,
            **more,
        )
        self._shared = shared
        self._owner: str | None = None
        self._head = 0
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None
        self._body: StreamReader | None = None
        self._broken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections."""
        owner = owner_of(transport.get_extra_info("peername"))
        try:
            self._shared.places.take(owner, 1)
        except FullError:
            self._force_close = True
            _send(transport, HTTPStatus.SERVICE_UNAVAILABLE, "The router has too many connections.")
            return
        self._owner = owner
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._end_head()
        self._give_back()
        if self._owner is not None:
            self._shared.places.give_back(self._owner, 1)
            self._owner = None
        self._body = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, in pieces. A head ends with a piece where it reaches its limit."""
        at = 0
        while at < len(data):
            end = at + min(_PIECE, self._shared.limits.head - self._head)
            self._parse(data[at:end])
            at = end
        if not data:  # aiohttp goes on with what it has
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        if self._close or self._force_close or self._broken:
            return
        count = self._request_count
        body = self._body if self._body is not None and not self._body.is_eof() else None
        super().data_received(data)
        if self._request_count != count:
            self._came(*self._messages[-1], unfinished=body)
            self._end_head()
            if len(self._messages) > 1:
                self._hold(len(data))
            else:
                self._give_back()
        elif body is None and data:
            self._grow(len(data))

    def _came(self, message: Any, body: StreamReader, *, unfinished: StreamReader | None) -> None:
        """A request has come, or what is none.

        Args:
            message: Its head, or an error of the parser.
            body: Its body.
            unfinished: The body of the request before it, if that was not complete.
        """
        self._body = body
        self._broken = not isinstance(message, RawRequestMessage)
        if self._broken and self.transport is not None:
            self.transport = cast("asyncio.Transport", _Lingering(self.transport))
        if self._broken and unfinished is not None:
            self._messages.pop()  # the answer to the request with this body is the last one
            unfinished.set_exception(web.RequestPayloadError(_first_line(message.message)))
            unfinished.feed_eof()
            self.close()

    def _grow(self, length: int) -> None:
        """A part of a head has come."""
        if self._head + length >= self._shared.limits.head:
            self._refuse(_TOO_LONG, f"The headers are longer than {self._shared.limits.head} bytes.")
        elif self._hold(length):
            self._head += length
            self._timer = self._timer or asyncio.get_running_loop().call_later(
                self._shared.limits.head_seconds, self._is_late
            )

    def _hold(self, length: int) -> bool:
        """Count bytes of heads that are not complete, or wait behind another request. Whether there was room."""
        if self._owner is None:
            return False
        try:
            self._shared.heads.take(self._owner, length)
        except FullError:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The router has too many requests that are not complete.")
            return False
        self._held += length
        return True

    def _is_late(self) -> None:
        seconds = self._shared.limits.head_seconds
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The headers did not come within {seconds:g} s.")

    def _end_head(self) -> None:
        self._head = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_back(self) -> None:
        if self._held and self._owner is not None:
            self._shared.heads.give_back(self._owner, self._held)
        self._held = 0

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """End the connection, with an answer if no other one is under way."""
        self._end_head()
        self._give_back()
        if self._current_request is not None or self._messages:
            self.close()
            return
        transport, self.transport = self.transport, None
        self.force_close()
        if transport is not None:
            _send(transport, status, message)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no correct HTTP, and after an error of the router.

        Raises:
            ConnectionError: An answer has begun.
        """
        super().handle_error(request, status, exc, message)  # logs it
        text = "The router failed." if status >= HTTPStatus.INTERNAL_SERVER_ERROR else str(message or "")
        if isinstance(exc, LineTooLong) or text.startswith("Too many headers"):
            status = _TOO_LONG
            text = f"The request has a line of more than {self._shared.limits.head} bytes, or {_MOST_HEADERS} headers."
        elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
            text = f"The request is not correct HTTP: {_first_line(text)}"
        request._version = HttpVersion11  # that of a request without a version is 1.0
        response = _Refusal(
            status=status, body=msgspec.json.encode(problem("", status, text)), headers={REQUEST_ID: str(uuid4())}
        )
        response.headers["Content-Type"] = _JSON
        response.force_close()
        return response


class _Refusal(web.Response):
    """A response that does not name the software."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall("Server", None)


class _Lingering:
    """A transport that closes when the client has had time to read the last answer.

    If it closed while the client sends, the client's system would discard that answer.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether nothing more may be written."""
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        """Close a little later. What still comes is dropped."""
        if self.is_closing():
            return
        self._is_closing = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, self._transport.close)


def _send(transport: asyncio.BaseTransport, status: HTTPStatus, message: str) -> None:
    """Send an answer without a request, and close."""
    body = msgspec.json.encode(problem("", status, message))
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {_JSON}",
        f"{REQUEST_ID}: {uuid4()}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    lingering = _Lingering(cast("asyncio.Transport", transport))
    lingering.write("".join(f"{line}\r\n" for line in (*head, "")).encode() + body)
    lingering.close()


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip(":")


class Site(web.SockSite):
    """Listens for connections.

    Args:
        runner: aiohttp's runner, which has been set up.
        shared: What the connections share.
        more: Arguments of aiohttp's class, and of connections: `logger`.
    """

    def __init__(self, runner: web.AppRunner, shared: Connections, logger: Any, **more: Any) -> None:
        super().__init__(runner, **more)
        self._shared = shared
        self._logger = logger

    async def start(self) -> None:
        """Begin to listen."""
        await web.BaseSite.start(self)
        server = cast("web.Server", self._runner.server)
        context = self._ssl_context
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(server, self._shared, logger=self._logger, access_log=None),
            sock=self._sock,
            ssl=context,
            backlog=self._backlog,
            ssl_handshake_timeout=None if context is None else _HANDSHAKE_S,
        )
