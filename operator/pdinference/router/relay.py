"""Passes a stream on to a client.

Tests: tests/router/test_handover.py, tests/router/test_migration.py, tests/router/test_failures.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

from aiohttp import web

from pdinference.router.answer_text import AnswerText
from pdinference.router.calls import Call
from pdinference.router.errors import error_event
from pdinference.router.events import BOUNDARY, says_engine_died
from pdinference.router.exchange import PodFailure, Stream, check_not_aborted
from pdinference.router.migration import StreamFaultError, StreamProgress
from pdinference.router.record import Record
from pdinference.router.timing import StreamTiming
from pdinference.router.usage import usage_in

_LONGEST_EVENT: Final = 2**20
_LONGEST_WITH_IDS: Final = 16 * 2**20
"""One with the ids of the tokens of a prompt, without which a stream cannot continue. A million of them has 8 MiB."""


class Relay:
    """A stream to a client.

    Args:
        response: The response to the client.
        progress: How far the stream has come; None if it cannot continue at another pod.
        timing: When its tokens came; None if it is not measured.
        text: Keeps its text; None if that is not kept.

    Attributes:
        is_complete: Whether all of it has come.
    """

    def __init__(
        self,
        response: web.StreamResponse,
        progress: StreamProgress | None,
        timing: StreamTiming | None = None,
        text: AnswerText | None = None,
    ) -> None:
        self.response = response
        self.is_complete = False
        self._progress = progress
        self._timing = timing
        self._text = text
        self._longest = _LONGEST_EVENT if progress is None else _LONGEST_WITH_IDS
        self._rest = b""
        self._latest = b""

    @property
    def can_continue(self) -> bool:
        """Whether another pod can continue the stream."""
        return self._progress is not None and self._progress.can_continue

    @contextmanager
    def counted(self, record: Record) -> Iterator[None]:
        """Count the tokens of the stream when it has ended: those of vLLM's report, or those that have come."""
        try:
            yield
        finally:
            self._count(record)

    def _count(self, record: Record) -> None:
        so_far = None if self._progress is None else self._progress.usage
        reported = usage_in(self._latest) if self._timing is None else self._timing.usage
        if self.is_complete:
            usage = reported or so_far
            record.count(usage, known=usage is not None)
        else:
            record.count(so_far or reported, known=so_far is not None)

    def next_call(self) -> Call | None:
        """The call that continues it; None if only its end is missing."""
        self._rest = b""
        return None if self._progress is None else self._progress.next_call()

    async def pass_on(self, answer: Stream, record: Record) -> None:
        """Pass on what a pod sends, to its end.

        Raises:
            PodFailure: The pod broke off.
            StreamFaultError: It sent an error.
        """
        with record.stage("tokens"):
            try:
                await self._write(answer.first, answer)
                async for chunk in answer.rest():
                    if self._timing is not None:
                        self._timing.came()
                    await self._write(chunk, answer)
            except (PodFailure, StreamFaultError):
                await self._write_left()
                raise
        await self._write_left()
        if self._rest and self._progress is None:
            await self.response.write(self._rest)

    async def end(self) -> None:
        """Send the events that are missing at the end."""
        if self._progress is not None:
            await self.response.write(self._progress.end())

    async def fail(self, path: str, message: str) -> None:
        """Send an error as the last event.

        Args:
            path: The endpoint.
            message: What is wrong.
        """
        await self.response.write(error_event(path, HTTPStatus.BAD_GATEWAY, message, self._latest))

    async def _write(self, data: bytes, answer: Stream) -> None:
        """Send whole events: a client could not read an error after a part of one."""
        data = self._whole(data)
        check_not_aborted(answer.path, data)
        if says_engine_died(data):  # vLLM then ends the stream as if it were complete
            raise answer.died()
        if self._text is not None:
            self._text.take(data)
        if self._progress is not None:
            data = self._progress.take(data)
        if self._timing is not None:
            data = self._timing.take(data)
        if data:
            self._latest = data
            await self.response.write(data)

    async def _write_left(self) -> None:
        """Send what waits for the report of the number of tokens."""
        if self._timing is not None and (left := self._timing.left()):
            await self.response.write(left)

    def _whole(self, data: bytes) -> bytes:
        if not self._rest and data.endswith(BOUNDARY):
            return data
        seen = max(0, len(self._rest) - 1)  # a boundary may have come in part
        data = self._rest + data
        end = data.rfind(BOUNDARY, seen)
        if end < 0 and len(data) > self._longest:  # these are no events as vLLM writes them
            self._rest = b""
            return data
        self._rest = data[end + len(BOUNDARY) :] if end >= 0 else data
        return data[: len(data) - len(self._rest)]
