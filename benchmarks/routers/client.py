"""Sends requests to a router, and says how each ended."""

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from benchmarks.processes import HOST

PATH: Final = "/v1/completions"
WHOLE: Final = "whole"
NO_ANSWER: Final = "no end"
_EVENT: Final = b'data: {"'
_JSON: Final = {"Content-Type": "application/json"}
_ERROR: Final = (b'"error":', b"event: error")


@dataclass
class Answer:
    """How a request ended.

    Attributes:
        at: Seconds from the start of the load to the request.
        outcome: `whole`, or the failure.
        first: Seconds until the first token.
        whole: Seconds until the end, whatever it was.
        gap: The longest time between two reads, in seconds.
        tokens: Of the answer.
    """

    at: float
    outcome: str = "cut"
    first: float = 0.0
    whole: float = 0.0
    gap: float = 0.0
    tokens: int = 0

    @property
    def token_s(self) -> float:
        """Mean seconds between two tokens."""
        return (self.whole - self.first) / max(1, self.tokens - 1)


def body(prompt: str, tokens: int, model: str = "m", pause_ms: int = 0) -> dict[str, Any]:
    """A streamed completion.

    Args:
        prompt: The prompt.
        tokens: Of the answer.
        model: The model.
        pause_ms: Between two chunks of fake servers.
    """
    asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "stream": True, "temperature": 0}
    return asked | {"ignore_eos": True, "seed": pause_ms}


def session() -> aiohttp.ClientSession:
    """A client without limits."""
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None), trust_env=False)


async def ask(
    client: aiohttp.ClientSession, port: int, asked: dict[str, Any], zero: float, limit_s: float = 600.0
) -> Answer:
    """Send a request and read its answer.

    Args:
        client: Sends it.
        port: Of the router.
        asked: The body.
        zero: When the load began.
        limit_s: Seconds until the client gives up.
    """
    began = time.monotonic()
    answer = Answer(began - zero, tokens=asked["max_tokens"])
    try:
        async with asyncio.timeout(limit_s):
            await _read(client, port, asked, began, answer)
    except TimeoutError:
        answer.outcome = NO_ANSWER
    except aiohttp.ClientError as error:
        answer.outcome = f"cut ({type(error).__name__})" if answer.first else type(error).__name__
    answer.whole = time.monotonic() - began
    return answer


async def _read(client: aiohttp.ClientSession, port: int, asked: dict[str, Any], began: float, answer: Answer) -> None:
    last, tail = began, b""
    async with client.post(f"http://{HOST}:{port}{PATH}", data=json.dumps(asked), headers=_JSON) as response:
        if response.status != 200:
            await response.read()
            answer.outcome = f"status {response.status}"
            return
        async for chunk in response.content.iter_any():
            now = time.monotonic()
            if not answer.first and _EVENT in tail + chunk:
                answer.first = now - began
            answer.gap, last = max(answer.gap, now - last if tail else 0.0), now
            tail = (tail + chunk)[-2048:]
    if b"data: [DONE]" in tail:
        answer.outcome = WHOLE
    if any(mark in tail for mark in _ERROR):
        answer.outcome = "error event"


async def send(
    port: int, times: Sequence[float], make: Callable[[int], dict[str, Any]], limit_s: float = 600.0
) -> list[Answer]:
    """Send requests at these seconds after the start, whatever became of those before."""
    zero, tasks = time.monotonic(), []
    async with session() as client:
        for number, at in enumerate(times):
            asked = make(number)
            await asyncio.sleep(max(0.0, zero + at - time.monotonic()))
            tasks.append(asyncio.create_task(ask(client, port, asked, zero, limit_s)))
        return list(await asyncio.gather(*tasks))


async def keep_asking(
    port: int,
    make: Callable[[], dict[str, Any]],
    amid: Awaitable[None],
    *,
    clients: int,
    seconds: float,
    limit_s: float,
) -> list[Answer]:
    """Let clients ask one request after the other for so many seconds, and await something amid them."""
    zero, answers = time.monotonic(), list[Answer]()

    async def one(client: aiohttp.ClientSession) -> None:
        while time.monotonic() < zero + seconds:
            answers.append(await ask(client, port, make(), zero, limit_s))
            if answers[-1].outcome != WHOLE:
                await asyncio.sleep(0.2)

    async with session() as client:
        await asyncio.gather(amid, *(one(client) for _ in range(clients)))
    return answers


def percentile(values: Sequence[float], at: int) -> float:
    """A percentile of some numbers; the only one if there is one, 0 if there is none."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[at - 1]
