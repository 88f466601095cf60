"""Connections of aiohttp's client to servers that are not trusted. What is not correct HTTP ends the connection.

Two faults of aiohttp 3.14 are mended here (aiohttp/client_proto.py, `data_received`):

- It reports a framing error after the headers to the connection alone. The parser lets go of the body, the connection
  is closed, and a coroutine that reads the body waits for ever.
- It keeps a response that comes without a request, and takes it for the answer to the next request.
"""

from collections.abc import Callable  # noqa: TC003 - of a local variable
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

_NOT_HTTP: Final = "The response is not correct HTTP"


class _Answers(ResponseHandler):
    """A connection."""

    def set_response_params(self, **params: Any) -> None:
        """Expect the response to a request."""
        self._payload = None
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Take the next bytes of a response. Bytes after its end belong to none."""
        body = self._payload
        if data and body is not None and body.is_eof():
            self._drop()
            return
        heads = len(self._buffer)  # the head of this response may not have been read yet
        super().data_received(data)
        if body is not None and len(self._buffer) > heads:
            self._drop()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """End the connection with an error, and the body that is being read; aiohttp calls this for each error."""
        body = self._payload
        super().set_exception(exc, *cause)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError(f"{_NOT_HTTP}: {exc!r}"), exc)

    def _drop(self) -> None:
        self._buffer.clear()
        self.abort()


class Connector(aiohttp.TCPConnector):
    """Such connections. Its arguments are those of aiohttp's."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        answers: Callable[..., ResponseHandler] = _Answers
        self._factory = partial(answers, loop=self._loop)
