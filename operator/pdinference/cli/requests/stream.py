"""Streamed answers of a router, and when their parts came.

Tests: tests/cli/test_chat.py, tests/cli/test_bench.py
"""

import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final

import aiohttp
import msgspec

from pdinference.api.plain_text import plain
from pdinference.router.untrusted import NotJsonError, decoded

Json = dict[str, Any]

_REQUEST_ID: Final = "X-Request-Id"
_PREFILLED_BY: Final = "X-PDInference-Prefill"
_DATA: Final = b"data:"
_END: Final = b"[DONE]"
_LONGEST_EVENT: Final = 2**22
_KEPT: Final = frozenset("\n\t")


class RequestError(Exception):
    """A request has no complete answer."""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    """A part of a chat, of its reasoning, or of a completion."""

    delta: _Delta | None = None
    text: str | None = None

    @property
    def part(self) -> str:
        delta = self.delta or _Delta()
        return printable(delta.content or delta.reasoning or self.text or "")


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """A streamed answer. Times are in seconds from the request.

    Attributes:
        prefill: Role that computed the prompt; empty if the router does not say.
        first: Time of the first token.
        total: Time of the last one.
        gaps: Seconds between two parts of the answer. vLLM sends a part for each token, or for those of one step.
        prompt_tokens, answer_tokens: As vLLM counted them.
    """

    request_id: str
    text: str
    prefill: str
    first: float
    total: float
    gaps: Sequence[float]
    prompt_tokens: int
    answer_tokens: int

    @property
    def between(self) -> float | None:
        """Mean time per output token after the first; None with fewer than two tokens."""
        return (self.total - self.first) / (self.answer_tokens - 1) if self.answer_tokens > 1 else None


async def models(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> list[str]:
    """The names of the models that a router serves.

    Raises:
        RequestError: The router gave no list.
    """
    async with session.get(f"{url}/v1/models", headers=headers) as response:
        await _check(response)
        body = await response.read()
    try:
        found: _Models = decoded(body, _Models)
    except NotJsonError:
        raise RequestError("The router's list of models is not as vLLM writes it.") from None
    return [model.id for model in found.data]


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    body: Json,
    headers: dict[str, str],
    *,
    show: Callable[[str], None] = lambda _: None,
) -> StreamedAnswer:
    """Send a request for a streamed answer, and read it to its end.

    Args:
        session: HTTP client.
        url: URL of `/v1/chat/completions` or `/v1/completions`.
        body: The request, without the members that make it a stream.
        headers: Headers, with `X-Request-Id`.
        show: Called with each part of the text.

    Raises:
        RequestError: The router refused the request, or the answer is not complete.
    """
    sent = {**body, "stream": True, "stream_options": {"include_usage": True}}
    began = time.perf_counter()
    arrivals: list[float] = []
    parts: list[str] = []
    usage = _Usage()
    async with session.post(url, json=sent, headers=headers) as response:
        await _check(response)
        async for event in _events(response):
            usage = event.usage or usage
            if event.choices:
                arrivals.append(time.perf_counter() - began)
                if text := event.choices[0].part:
                    parts.append(text)
                    show(text)
    return StreamedAnswer(
        request_id=headers[_REQUEST_ID],
        text="".join(parts),
        prefill=response.headers.get(_PREFILLED_BY, ""),
        first=arrivals[0] if arrivals else 0.0,
        total=arrivals[-1] if arrivals else 0.0,
        gaps=[after - before for before, after in pairwise(arrivals)],
        prompt_tokens=usage.prompt_tokens,
        answer_tokens=usage.completion_tokens or 0,
    )


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[_Event]:
    """The events up to the last one.

    Raises:
        RequestError: There is no last one, or one says that the request failed.
    """
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            data = line.removeprefix(_DATA).strip() if line.startswith(_DATA) else b""
            if data == _END:
                return
            if data:
                event = _parsed(data)
                if event.error is not None:
                    raise RequestError(_message(event.error))
                yield event
        if len(rest) > _LONGEST_EVENT:
            raise RequestError("The answer has an event of more than 4 MiB.")
    raise RequestError("The answer broke off.")


def _parsed(data: bytes) -> _Event:
    try:
        event: _Event = decoded(data, _Event)
    except NotJsonError:
        raise RequestError("The answer has an event that is not as vLLM writes it.") from None
    return event


def printable(text: str) -> str:
    """Text without control characters, which a model could use against the terminal."""
    return "".join(c for c in text if c in _KEPT or unicodedata.category(c) not in {"Cc", "Cf", "Cs"} or c == "\u200d")


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == HTTPStatus.OK:
        return
    text = await response.text(errors="replace")
    try:
        found: Json = decoded(text.encode(), dict[str, Any])
        message = _message(found.get("error") or found)
    except NotJsonError:
        message = plain(text, 300)
    advice = ""
    if response.status == HTTPStatus.UNAUTHORIZED:
        advice = " Pass one with --api-key, or in PDINFERENCE_API_KEY."
    elif response.status == HTTPStatus.SERVICE_UNAVAILABLE:
        advice = " `kubectl pdi status` says what is not ready."
    raise RequestError(f"The router answers {response.status}: {message}{advice}")


def _message(error: Any) -> str:
    return plain(str(error.get("message") if isinstance(error, dict) else error), 500)
