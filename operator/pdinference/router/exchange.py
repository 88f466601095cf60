"""One request to one pod.

Tests: tests/router/test_failures.py, tests/router/test_broken_answers.py, tests/router/test_hops.py
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from pdinference.engine.connectors.handover import TransferParams
from pdinference.router import errors, tracing
from pdinference.router.events import LONGEST_PROBLEM, problem_at_the_beginning, problem_in
from pdinference.router.failure_reason import FailureReason
from pdinference.router.fair_shares import HEADER
from pdinference.router.hops import is_answer
from pdinference.router.pod import Pod
from pdinference.router.room import ClientAnswers
from pdinference.router.untrusted import NotJsonError, check_values, decoded

LONGEST_ANSWER: Final = 64 * 2**20
"""Bytes of an answer that is not a stream. It is read as a whole, so that a pod that dies meanwhile can be replaced."""
LONGEST_PREFILL: Final = 16 * 2**20
"""Bytes of an answer of P: one token, and the ids of the tokens of the prompt if the client wants them."""
_LONGEST_PARAMS: Final = 2**20
"""Bytes of its `kv_transfer_params`. A prompt of a million tokens has 65,536 blocks in half of that."""
LONGEST_REPORT: Final = 2**20
"""Bytes of what a pod says of itself."""
_EVENTS: Final = "text/event-stream"
_FAULT: Final = HTTPStatus.INTERNAL_SERVER_ERROR
_RETRIED: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT})
"""Responses below 500 that another pod may answer better."""
_RANK: Final = "X-data-parallel-rank"
"""The rank that computes a request (vllm/entrypoints/generate/base/serving.py)."""
_PLACED: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages"})
"""Endpoints whose requests go to the rank that is named, but for beam search. /v1/responses does since vLLM 0.33."""
_ABORTED: Final = b'"finish_reason":"abort"'
"""vLLM ended the request itself, although no client left, for example because it came after SIGTERM
(vllm/v1/engine/core.py). The response is 200. A text cannot contain these bytes: its quotes are escaped."""
_REPEATING: Final = frozenset({"/v1/responses", "/v1/messages"})
"""Endpoints whose answers have objects of the client or of the model as they are, such as `metadata` and the input of a
tool, and no finish reason of this form."""

_T = TypeVar("_T")


class PodFailure(Exception):  # noqa: N818 - the field's word
    """A pod did not answer a request, or stopped in the middle of its answer.

    Attributes:
        reason: Why.
        status: The HTTP status, if that is why.
        answer: The response of a pod that can answer, but not this request.
        was_failing: Whether the pod had failed another request before it got this one, and had not answered since.
        alone: Whether the pod had no other request, and had sent nothing of the answer.
    """

    def __init__(self, reason: FailureReason, *, status: int | None = None, answer: "Whole | None" = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.answer = answer
        self.was_failing = False
        self.alone = False

    @property
    def reached(self) -> bool:
        """Whether the pod may have begun to compute."""
        return self.reason is not FailureReason.REFUSED

    @property
    def label(self) -> str:
        """For metrics and logs: `disconnected`, `status_503`."""
        return self.reason if self.status is None else f"{self.reason}_{self.status}"


class _TooLargeError(Exception):
    """The answer is longer than it may be."""


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is complete."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes


class Stream:
    """A stream of events whose first bytes have arrived."""

    def __init__(self, exchange: "Exchange", response: aiohttp.ClientResponse, first: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.first = first
        self.pod = exchange.pod
        self.path = response.url.path
        self.is_complete = False
        self._exchange = exchange
        self._response = response

    async def rest(self) -> AsyncIterator[bytes]:
        """The bytes after the first ones, as they come.

        Raises:
            PodFailure: The stream has broken off.
        """
        with self._exchange.marked(), self._exchange.failures():
            while chunk := await self._exchange.piece(self._response):
                yield chunk
        self.is_complete = True

    def died(self) -> PodFailure:
        """The failure, if the pod says that its engine has died."""
        failure = PodFailure(FailureReason.ENGINE_DIED)
        self._exchange.mark(failure)
        return failure


class Exchange:
    """A request to a pod. It ends early if the pod turns out to be lost.

    Attributes:
        pod: Where it went.
        stream: Whether its first byte comes with the first token, and not with the last one.
        began_at: When it was sent, on the clock of the event loop.
        reads_from: The P pod from which D may still be reading the KV cache of its prompt; None if it reads none.
        place: Its place in vLLM's queue.
        overtaken: Whether a stream has had its first byte that vLLM should have taken later.
        placed: Whether the rank computes it that it was sent to; otherwise vLLM chooses one.
    """

    def __init__(
        self,
        pod: Pod,
        session: aiohttp.ClientSession,
        *,
        stream: bool,
        reads_from: Pod | None,
        answers: ClientAnswers | None,
    ) -> None:
        self.pod = pod
        self.stream = stream
        self._now = asyncio.get_running_loop().time
        self.began_at = self._now()
        self.reads_from = reads_from
        self.place = 0
        self.overtaken = False
        self.placed = True
        self._was_failing = any(one.failures for one in pod.together)
        self._begun = False
        self._session = session
        self._response: aiohttp.ClientResponse | None = None
        self._beginning: asyncio.Task[Any] | None = None
        self._lost: FailureReason | None = None
        self._holdings = answers.holdings(pod.observed.server) if answers is not None else ()

    def abort(self, reason: FailureReason) -> None:
        """End it as a failure of the pod."""
        if self._lost:
            return
        self._lost = reason
        if self._beginning is not None:
            self._beginning.cancel()
        if self._response is not None:
            self._response.close()

    def close(self) -> None:
        """Give the connection back, or close it if the answer is not complete. vLLM then stops computing."""
        for holding in self._holdings:
            holding.give_back()
        if self._response is not None:
            self._response.release()

    def _wait(self) -> None:
        """Note that the router begins to wait for the pod. At other times it waits for the client, or for room."""
        if not self.pod.awaited:
            self.pod.heard_at = self._now()
        self.pod.awaited += 1

    async def piece(self, response: aiohttp.ClientResponse) -> bytes:
        """The next bytes that the pod sends; none at the end."""
        self._wait()
        try:
            found = await response.content.readany()
        finally:
            self.pod.awaited -= 1
        self.pod.heard_at = self._now()
        return found

    def mark(self, failure: PodFailure) -> None:
        """Say in a failure what the pod was doing besides."""
        failure.was_failing = self._was_failing
        failure.alone = self.pod.failed_one(self) == 0 and not self._begun

    @contextmanager
    def marked(self) -> Iterator[None]:
        """Mark a `PodFailure`."""
        try:
            yield
        except PodFailure as failure:
            self.mark(failure)
            raise

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn errors of the connection into `PodFailure`."""
        try:
            yield
        except asyncio.CancelledError:
            # `abort` cancels once, while a request begins. Any other time it was because the client has gone.
            if not self._lost or self._beginning is None or self._beginning.uncancel():
                raise
            raise PodFailure(self._lost) from None
        except aiohttp.ClientConnectorError as error:
            raise PodFailure(self._lost or FailureReason.REFUSED) from error
        except (aiohttp.ClientError, aiohttp.EofStream, OSError, TimeoutError) as error:
            raise PodFailure(self._lost or FailureReason.DISCONNECTED) from error

    async def begin(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        url: str = "",
        longest: int = LONGEST_ANSWER,
    ) -> Whole | Stream:
        """Send the request, and wait for the first bytes of a stream or for a whole answer.

        Args:
            method: HTTP method.
            path: Path on the server.
            headers: Headers.
            body: The body, if there is one.
            url: Of another server in the pod than vLLM, without a path.
            longest: Bytes of a whole answer. An error has `LONGEST_PROBLEM` at most.

        Raises:
            PodFailure: The pod did not answer, or cannot serve the request now.
            FullError: There is no room for its answer.
        """
        if self.pod.observed.rank is not None:
            self.placed = path in _PLACED and b'"use_beam_search"' not in (body or b"")
        self.place = int(headers.get(HEADER, 0))
        self._beginning = asyncio.current_task()
        with self.marked():
            try:
                with self.failures():
                    answer = await self._begin(method, (url or self.pod.url) + path, headers, body, longest)
            finally:
                self._beginning = None
            _check(path, answer)
        self._begun = True
        return answer

    async def _begin(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, longest: int
    ) -> Whole | Stream:
        sent = CIMultiDict(headers)
        sent.update(tracing.headers())
        if self.pod.observed.rank is not None:
            sent[_RANK] = str(self.pod.observed.rank)
        self._wait()
        try:
            self._response = response = await self._session.request(
                method, url, headers=sent, data=body, allow_redirects=False
            )
        finally:
            self.pod.awaited -= 1
        if not is_answer(response.status):
            raise PodFailure(FailureReason.STATUS, status=response.status)
        if not _is_framed(response):
            raise PodFailure(FailureReason.UNFRAMED_ANSWER)
        if response.content_type == _EVENTS and response.status == HTTPStatus.OK:
            first = await self.piece(response)
            self.reads_from = None
            self.pod.has_begun(self)
            if not first:
                raise PodFailure(FailureReason.EMPTY_STREAM)
            return Stream(self, response, first)
        self.reads_from = None  # the headers of a whole answer come when it is complete
        longest = longest if response.ok else min(longest, LONGEST_PROBLEM)
        try:
            return Whole(response.status, response.headers, await self._read(response, longest))
        except _TooLargeError:
            answer = _too_large(response, longest)
        if response.ok:
            raise PodFailure(FailureReason.ANSWER_TOO_LARGE, answer=answer)
        return answer

    async def _hold(self, length: int, longest: int) -> None:
        """Hold room for so many bytes of an answer."""
        if length > longest:
            raise _TooLargeError
        for holding in self._holdings:
            await holding.grow(max(0, length - holding.bytes))

    async def _read(self, response: aiohttp.ClientResponse, longest: int) -> bytes:
        """A whole answer. It is held until the exchange ends."""
        found = bytearray()
        await self._hold(response.content_length or 0, longest)  # answers must not wait half held
        while chunk := await self.piece(response):
            await self._hold(len(found) + len(chunk), longest)
            found += chunk
        return bytes(found)


def _is_framed(response: aiohttp.ClientResponse) -> bool:
    """Whether a response says where it ends.

    One that ends where the connection does looks complete wherever it breaks off. vLLM sends none.
    """
    headers = response.headers
    return "Content-Length" in headers or headers.get("Transfer-Encoding", "").lower() == "chunked"


def _too_large(response: aiohttp.ClientResponse, longest: int) -> Whole:
    """The error in place of an answer that is too large.

    It is no fault of the pod. A client may ask for such an answer, and vLLM's errors repeat what a client sent, such as
    the name of a model.
    """
    status = HTTPStatus.BAD_GATEWAY if response.ok else response.status
    message = f"The answer of the pod is longer than {longest} bytes."
    return _error(response.url.path, status, message)


def _error(path: str, status: int, message: str) -> Whole:
    body = msgspec.json.encode(errors.problem(path, status, message))
    return Whole(status, CIMultiDictProxy(CIMultiDict({"Content-Type": "application/json"})), body)


def members(answer: Whole, form: type[_T]) -> _T:
    """What a short answer in JSON has.

    Raises:
        PodFailure: It has another form.
    """
    try:
        answer.body.decode()  # members that the form does not have are not decoded below
        return decoded(answer.body, form)
    except (NotJsonError, UnicodeDecodeError):
        raise PodFailure(FailureReason.MALFORMED_ANSWER) from None


class _OfPrefill(msgspec.Struct):
    """What counts of an answer of P."""

    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


async def transfer_params(answer: Whole) -> TransferParams | None:
    """The `kv_transfer_params` of an answer of P; None if it has none.

    Raises:
        PodFailure: It has another form, or more of them than a prompt can have.
    """
    try:
        await check_values(answer.body)
        read: _OfPrefill = decoded(answer.body, _OfPrefill)
    except NotJsonError:
        raise PodFailure(FailureReason.MALFORMED_ANSWER) from None
    found = read.kv_transfer_params
    if len(memoryview(found)) > _LONGEST_PARAMS:
        raise PodFailure(FailureReason.MALFORMED_ANSWER)
    try:
        return decoded(found, TransferParams | None)
    except NotJsonError:
        return None


def check_not_aborted(path: str, data: bytes) -> None:
    """Raise an error if vLLM has aborted the request.

    Args:
        path: The endpoint.
        data: An answer, or whole events of a stream.

    Raises:
        PodFailure: It has.
    """
    if _ABORTED in data and path not in _REPEATING:
        raise PodFailure(FailureReason.ABORTED)


def _check(path: str, answer: Whole | Stream) -> None:
    """Raise an error if another pod may answer better.

    vLLM has sent the headers of a stream before it computes, so the status of a fault is in its first event.

    Raises:
        PodFailure: That is so.
    """
    whole = isinstance(answer, Whole)
    problem = problem_in(answer.body) if isinstance(answer, Whole) else problem_at_the_beginning(answer.first)
    if problem is not None and problem.engine_died and (not whole or answer.status >= _FAULT):
        raise PodFailure(FailureReason.ENGINE_DIED)
    if isinstance(answer, Stream):
        if problem is not None and problem.is_fault:
            message = problem.error.message or "The pod ended the stream with an error."
            raise PodFailure(FailureReason.ERROR_EVENT, answer=_error(path, _FAULT, message))
        check_not_aborted(path, answer.first)
        return
    if answer.status >= _FAULT or answer.status in _RETRIED:
        raise PodFailure(FailureReason.STATUS, status=answer.status, answer=answer)
    check_not_aborted(path, answer.body)


@asynccontextmanager
async def exchange(
    pod: Pod,
    session: aiohttp.ClientSession,
    tokens: int,
    *,
    stream: bool = False,
    reads_from: Pod | None = None,
    answers: ClientAnswers | None = None,
) -> AsyncIterator[Exchange]:
    """A request to a pod that counts as its load until the end of the block.

    Args:
        pod: The pod.
        session: Connections to pods.
        tokens: Estimated tokens of the prompt.
        stream: Whether the answer is a stream.
        reads_from: The P pod from which the pod reads the KV cache of the prompt; None if it reads none.
        answers: Room for a whole answer, which is held until the end of the block; None for the router's own requests.
    """
    found = Exchange(pod, session, stream=stream, reads_from=reads_from, answers=answers)
    with pod.sending(found, tokens):
        try:
            yield found
        finally:
            found.close()
