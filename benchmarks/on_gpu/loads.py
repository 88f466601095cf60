"""Poisson loads on a server of vLLM that runs: `python -m benchmarks.on_gpu.loads URL 500/150@8+4+20 ...`.

Each load is PROMPT/ANSWER@RATE+WARM-UP+COUNTED, as the rows of `benchmarks.advise.measured`: requests a second, and
seconds. No prompt comes twice. One line of JSON for each load, with times in ms.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import urlopen

_SYNTAX: Final = re.compile(r"(\d+)/(\d+)@([\d.]+)\+([\d.]+)\+([\d.]+)")
_WORDS: Final = 30_000
_CHUNK: Final = 65536
_DRAIN_S: Final = 90
_PAUSE_S: Final = 1


@dataclass
class Request:
    """A streamed request.

    Attributes:
        sent: When it was sent.
        tokens: When each event with tokens came; a busy server puts several tokens into one.
        ended: Whether its answer is complete.
    """

    sent: float = 0.0
    tokens: list[float] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class Load:
    """Requests of one length.

    Attributes:
        prompt: Prompt tokens.
        answer: Tokens of the answer.
        rate: Requests a second.
        warm_up: Seconds whose requests are not counted.
        counted: Seconds whose requests are.
    """

    prompt: int
    answer: int
    rate: float
    warm_up: float
    counted: float


def load_of(text: str) -> Load:
    """A load as on the command line.

    Raises:
        ArgumentTypeError: It is none.
    """
    found = _SYNTAX.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not PROMPT/ANSWER@RATE+WARM-UP+COUNTED")
    prompt, answer, *numbers = found.groups()
    return Load(int(prompt), int(answer), *map(float, numbers))


def arrivals(load: Load, chance: random.Random) -> Iterator[tuple[float, list[int]]]:
    """When requests come, and their prompts."""
    at = 0.0
    while (at := at + chance.expovariate(load.rate)) < load.warm_up + load.counted:
        yield at, [chance.randrange(3, _WORDS) for _ in range(load.prompt)]


def measure(url: str, loads: list[Load], seed: int = 1, *, each: bool = False) -> None:
    """Run loads, one after the other, and print what each gave."""
    with urlopen(f"{url}/v1/models", timeout=60) as answer:  # noqa: S310 - an address of the command line
        model = json.load(answer)["data"][0]["id"]
    for load in loads:
        sys.stdout.write(json.dumps(asyncio.run(run(url, model, load, seed, each=each))) + "\n")
        sys.stdout.flush()
        time.sleep(_PAUSE_S)


async def run(url: str, model: str, load: Load, seed: int = 1, *, each: bool = False) -> dict[str, Any]:
    """Send a load, and report its times in ms.

    Args:
        url: Of the server.
        model: Its name for the model.
        load: What to send.
        seed: Of the arrivals and prompts.
        each: Whether to report every request, too: when it was sent, its time to the first token, its whole time (all
            in seconds), and its events.
    """
    bodies, requests = [], list[Request]()
    for at, prompt in arrivals(load, random.Random(seed)):
        asked = {"model": model, "prompt": prompt, "max_tokens": load.answer, "ignore_eos": True, "temperature": 0}
        bodies.append((at, json.dumps(asked | {"stream": True}).encode()))
    start, tasks = time.monotonic(), []
    for at, body in bodies:
        await asyncio.sleep(max(0.0, start + at - time.monotonic()))
        requests.append(Request())
        tasks.append(asyncio.create_task(_ask(url, body, requests[-1])))
    left = _DRAIN_S + start + load.warm_up + load.counted - time.monotonic()
    _, late = await asyncio.wait(tasks, timeout=left)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found = _report(load, requests, start + load.warm_up)
    return found | {"each": [_times(request, start) for request in requests if request.ended]} if each else found


def _times(request: Request, start: float) -> tuple[float, float, float, int]:
    first, last = request.tokens[0] - request.sent, request.tokens[-1] - request.sent
    return round(request.sent - start, 4), round(first, 4), round(last, 4), len(request.tokens)


async def _ask(url: str, body: bytes, request: Request) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {parts.hostname}\r\nContent-Type: application/json\r\n"
    try:
        request.sent = time.monotonic()
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        while chunk := await reader.read(_CHUNK):
            now = time.monotonic()
            request.tokens += [now] * chunk.count(b'"index":0')
            request.ended = request.ended or b"[DONE]" in chunk
    finally:
        writer.close()


def _report(load: Load, requests: list[Request], counted_from: float) -> dict[str, Any]:
    counted = [request for request in requests if request.sent >= counted_from]
    whole = [request for request in counted if request.ended and request.tokens]
    if len(whole) < 2:
        return vars(load) | {"requests": len(counted), "incomplete": len(counted) - len(whole)}
    gaps = [
        second - first
        for request in requests
        for first, second in zip(request.tokens, request.tokens[1:], strict=False)
        if second >= counted_from
    ]
    columns = {
        "ttft": [request.tokens[0] - request.sent for request in whole],
        "tpot": [(request.tokens[-1] - request.tokens[0]) / (load.answer - 1) for request in whole],
        "gap": gaps,
        "whole": [request.tokens[-1] - request.sent for request in whole],
    }
    times = {name: _percentiles(values) for name, values in columns.items()}
    return vars(load) | {"requests": len(counted), "incomplete": len(counted) - len(whole)} | times


def _percentiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"p{at}": round(1000 * cuts[at - 1], 3) for at in (50, 90, 95, 99)} | {"max": round(1000 * max(seconds), 3)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("loads", nargs="+", type=load_of)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="print every request, too")
    arguments = parser.parse_args()
    measure(arguments.url.rstrip("/"), arguments.loads, arguments.seed, each=arguments.each)


if __name__ == "__main__":
    main()
