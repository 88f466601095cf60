"""Incremental parser of an HTTP response. It buffers only the headers and the current line.

aiohttp's client parses up to 256 KiB before it returns control: chunks of one byte or many `100 Continue` responses
would block the event loop.

Tests: tests/loadmetrics/test_exposition_fuzz.py, tests/loadmetrics/test_hostile_pods.py
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from pdinference.loadmetrics.scraping.unreadable import Reason, UnreadableError

LONGEST_BODY: Final = 2**22
"""Maximum body size, enough for as many data-parallel ranks as there may be: 64, with 41 KB each (vLLM 0.32)."""
LONGEST_LINE: Final = 4096
_LONGEST_HEAD: Final = 16384
_MOST_CHUNKS: Final = 4096
_LONGEST_CHUNK_HEAD: Final = 256

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: .*)?", re.DOTALL)
_LENGTH: Final = re.compile(rb"[0-9]{1,10}")
_CHUNK_HEAD: Final = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;.*)?\r?", re.DOTALL)


class HttpAnswer:
    """An HTTP response.

    Args:
        prefix: Prefix of the relevant lines of the body, or several.

    Attributes:
        complete: Whether the body has ended.
    """

    def __init__(self, prefix: bytes | tuple[bytes, ...]) -> None:
        self.complete = False
        self._prefix = prefix
        self._head = bytearray()
        self._decoded: Callable[[bytes], bytes] | None = None
        self._ends_with_connection = False
        self._left = 0
        self._body_bytes = 0
        self._chunks = 0
        self._chunk_head = b""
        self._after_data = False
        self._line = b""
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Parse a piece of data and yield the relevant lines that end in it.

        Raises:
            UnreadableError: The response does not have status 200 or exceeds the limits.
        """
        if self._decoded is None:
            data = self._after_head(data)
        if self._decoded is not None and data:
            yield from self._lines(self._decoded(data))
        if self.complete:
            yield from self._lines(b"\n")

    def end(self) -> Iterator[bytes]:
        """Handle the end of the connection.

        Raises:
            UnreadableError: The response is not complete.
        """
        if not self.complete and not self._ends_with_connection:
            raise UnreadableError(Reason.UNREACHABLE, "the connection was closed before the response ended")
        self.complete = True
        yield from self._lines(b"\n")

    def _after_head(self, data: bytes) -> bytes:
        searched = max(0, len(self._head) - 3)
        self._head += data
        end = self._head.find(b"\r\n\r\n", searched)
        if end > _LONGEST_HEAD or (end < 0 and len(self._head) > _LONGEST_HEAD):
            raise UnreadableError(Reason.TOO_LONG, f"the headers are longer than {_LONGEST_HEAD} bytes")
        if end < 0:
            return b""
        head, rest = bytes(self._head[:end]), bytes(self._head[end + 4 :])
        self._head.clear()
        self._begin(head)
        return rest

    def _begin(self, head: bytes) -> None:
        """Parse the headers."""
        first, *fields = head.split(b"\r\n")
        status = _STATUS.fullmatch(first)
        if status is None:
            raise UnreadableError(Reason.MALFORMED, "the response is not HTTP/1.1")
        if status[1] != b"200":
            raise UnreadableError(Reason.STATUS, f"the response has status {status[1].decode()}")
        pairs = (field.partition(b":") for field in fields)
        headers = {name.strip().lower(): value.strip().lower() for name, _, value in pairs}
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise UnreadableError(Reason.ENCODING, "the response is compressed")
        if (transfer := headers.get(b"transfer-encoding")) is not None:
            if transfer != b"chunked":
                raise UnreadableError(Reason.ENCODING, "the response has an unknown transfer encoding")
            self._decoded = self._of_chunks
        elif (length := headers.get(b"content-length")) is not None:
            self._left = self._promised(length)
            self.complete = not self._left
            self._decoded = self._of_length
        else:
            self._ends_with_connection = True
            self._decoded = self._counted

    def _promised(self, length: bytes) -> int:
        if not _LENGTH.fullmatch(length):
            raise UnreadableError(Reason.MALFORMED, "Content-Length is not a number of at most 10 digits")
        if int(length) > LONGEST_BODY:
            raise _too_long()
        return int(length)

    def _counted(self, data: bytes) -> bytes:
        self._body_bytes += len(data)
        if self._body_bytes > LONGEST_BODY:
            raise _too_long()
        return data

    def _of_length(self, data: bytes) -> bytes:
        data = data[: self._left]
        self._left -= len(data)
        self.complete = not self._left
        return data

    def _of_chunks(self, data: bytes) -> bytes:
        found, at = bytearray(), 0
        while at < len(data) and not self.complete:
            if self._left:
                part = data[at : at + self._left]
                found += part
                at += len(part)
                self._left -= len(part)
                self._after_data = not self._left
                continue
            newline = data.find(b"\n", at)
            self._chunk_head += data[at : newline if newline >= 0 else at + _LONGEST_CHUNK_HEAD + 1]
            if len(self._chunk_head) > _LONGEST_CHUNK_HEAD:
                raise UnreadableError(Reason.TOO_LONG, "the head of a chunk is too long")
            if newline < 0:
                break
            at = newline + 1
            self._next_chunk()
        return self._counted(bytes(found))

    def _next_chunk(self) -> None:
        head, self._chunk_head = self._chunk_head, b""
        if self._after_data and head == b"\r":
            self._after_data = False
            return
        size = None if self._after_data else _CHUNK_HEAD.fullmatch(head)
        if size is None:
            raise UnreadableError(Reason.MALFORMED, "the head of a chunk is not a hexadecimal number")
        self._left = int(size[1], 16)
        self.complete = not self._left
        self._chunks += 1
        if self._chunks > _MOST_CHUNKS:
            raise UnreadableError(Reason.TOO_LONG, f"the response has more than {_MOST_CHUNKS} chunks")
        if self._left > LONGEST_BODY:
            raise _too_long()

    def _lines(self, body: bytes) -> Iterator[bytes]:
        """The relevant lines. Lines above the limit are dropped."""
        first, *others = body.split(b"\n")
        self._line = b"" if self._skipping else self._line + first
        if others:
            whole = (self._line, *others[:-1])
            yield from (line for line in whole if line.startswith(self._prefix) and len(line) <= LONGEST_LINE)
            self._line, self._skipping = others[-1], False
        if len(self._line) > LONGEST_LINE:
            self._line, self._skipping = b"", True


def _too_long() -> UnreadableError:
    return UnreadableError(Reason.TOO_LONG, f"the response is longer than {LONGEST_BODY} bytes")
