"""Streamed answers of a router, and when their parts came."""

import json
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final

import aiohttp

from pdinference.api.plain_text import plain

Json = dict[str, Any]

_REQUEST_ID: Final = "X-Request-Id"
_PREFILLED_BY: Final = "X-PDInference-Prefill"
_DATA: Final = b"data:"
_END: Final = b"[DONE]"
_LONGEST_EVENT: Final = 2**22
_KEPT: Final = frozenset("\n\t")


class RequestError(Exception):
    """A request has no complete answer."""


@dataclass(frozen=True, slots=True)
class Answer:
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
        found = await response.json()
    return [str(model["id"]) for model in found.get("data") or ()]


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    body: Json,
    headers: dict[str, str],
    *,
    show: Callable[[str], None] = lambda _: None,
) -> Answer:
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
    usage: Json = {}
    async with session.post(url, json=sent, headers=headers) as response:
        await _check(response)
        async for event in _events(response):
            usage = event.get("usage") or usage
            if event.get("choices"):
                arrivals.append(time.perf_counter() - began)
                if text := printable(_text(event["choices"][0])):
                    parts.append(text)
                    show(text)
    return Answer(
        request_id=headers[_REQUEST_ID],
        text="".join(parts),
        prefill=response.headers.get(_PREFILLED_BY, ""),
        first=arrivals[0] if arrivals else 0.0,
        total=arrivals[-1] if arrivals else 0.0,
        gaps=[after - before for before, after in pairwise(arrivals)],
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        answer_tokens=int(usage.get("completion_tokens") or 0),
    )


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
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
                if "error" in event:
                    raise RequestError(_message(event))
                yield event
        if len(rest) > _LONGEST_EVENT:
            raise RequestError("The answer has an event of more than 4 MiB.")
    raise RequestError("The answer broke off.")


def _parsed(data: bytes) -> Json:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise RequestError("The answer has an event that is no JSON object.")
    return event


def _text(choice: Json) -> str:
    """The text of a chunk: of a chat, of its reasoning, or of a completion."""
    delta = choice.get("delta") or {}
    return str(delta.get("content") or delta.get("reasoning") or choice.get("text") or "")


def printable(text: str) -> str:
    """Text without control characters, which a model could use against the terminal."""
    return "".join(c for c in text if c in _KEPT or unicodedata.category(c) not in {"Cc", "Cf", "Cs"} or c == "\u200d")


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == HTTPStatus.OK:
        return
    text = await response.text(errors="replace")
    try:
        message = _message(json.loads(text))
    except ValueError:
        message = plain(text, 300)
    advice = ""
    if response.status == HTTPStatus.UNAUTHORIZED:
        advice = " Pass one with --api-key, or in PDINFERENCE_API_KEY."
    elif response.status == HTTPStatus.SERVICE_UNAVAILABLE:
        advice = " `kubectl pdi status` says what is not ready."
    raise RequestError(f"The router answers {response.status}: {message}{advice}")


def _message(found: Any) -> str:
    error = found.get("error") if isinstance(found, dict) else None
    return plain(str(error.get("message") if isinstance(error, dict) else error or found), 500)
