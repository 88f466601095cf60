"""Poisson loads on a server of vLLM that runs: `python -m benchmarks.on_gpu.loads URL 500/150@8+4+20 ...`.

Each load is PROMPT/ANSWER@RATE+WARM-UP+COUNTED, as the rows of `benchmarks.advise.measured`: requests a second, and
seconds. A mix names several lengths, each as likely: 8000/150,1000/250@6+4+30. With +DRAIN at the end, requests that
are not complete so many seconds after the load are cancelled. No prompt comes twice. 4000/250x6/150@1.2+15+20 has 1.2
conversations a second: six turns, each with all before it and 150 tokens more, after a second and a half of thought.
One line of JSON for each load, with times in ms.
"""

import argparse
import asyncio
import itertools
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import urlopen

_SYNTAX: Final = re.compile(r"(\d+/\d+(?:,\d+/\d+)*)(?:x(\d+)/(\d+))?@([\d.]+)\+([\d.]+)\+([\d.]+)(?:\+([\d.]+))?")
_TOKEN_IDS: Final = re.compile(rb'"token_ids":\[([\d,]*)\]')
_THOUGHT_S: Final = 1.5
_WORDS: Final = 30_000
_CHUNK: Final = 65536
_PAUSE_S: Final = 1


@dataclass
class Request:
    """A streamed request.

    Attributes:
        answer: Tokens that were asked for.
        prompt: Tokens of its prompt.
        sent: When it was sent.
        tokens: When each event with tokens came; a busy server puts several tokens into one.
        ended: Whether its answer is complete.
        turn: Which one of a conversation; 0 for the first.
        text: Its tokens, which the next turn begins with.
    """

    answer: int
    prompt: int
    turn: int = 0
    sent: float = 0.0
    tokens: list[float] = field(default_factory=list)
    ended: bool = False
    text: list[int] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether it was answered, and not with an error."""
        return self.ended and bool(self.tokens)


@dataclass(frozen=True)
class Load:
    """Requests of one length, or of several.

    Attributes:
        prompt: Prompt tokens.
        answer: Tokens of the answer.
        rate: Requests a second.
        warm_up: Seconds whose requests are not counted.
        counted: Seconds whose requests are.
        others: Prompt and answer tokens of further lengths, each as likely as the first.
        drain: Seconds after the load until incomplete requests are cancelled.
        turns: Of a conversation; `rate` counts conversations.
        added: Tokens that a turn adds to all before it.
    """

    prompt: int
    answer: int
    rate: float
    warm_up: float
    counted: float
    others: tuple[tuple[int, int], ...] = ()
    drain: float = 90
    turns: int = 1
    added: int = 0


def load_of(text: str) -> Load:
    """A load as on the command line.

    Raises:
        ArgumentTypeError: It is none.
    """
    found = _SYNTAX.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not PROMPT/ANSWER@RATE+WARM-UP+COUNTED[+DRAIN]")
    lengths, turns, added, rate, warm_up, counted, drain = found.groups()
    pairs = (pair.split("/") for pair in lengths.split(","))
    (prompt, answer), *others = ((int(prompt), int(answer)) for prompt, answer in pairs)
    load = Load(prompt, answer, float(rate), float(warm_up), float(counted), tuple(others))
    load = replace(load, turns=int(turns), added=int(added)) if turns else load
    return replace(load, drain=float(drain)) if drain else load


def arrivals(load: Load, chance: random.Random) -> Iterator[tuple[float, list[int], int]]:
    """When requests come, their prompts, and the tokens of their answers."""
    at, lengths = 0.0, ((load.prompt, load.answer), *load.others)
    while (at := at + chance.expovariate(load.rate)) < load.warm_up + load.counted:
        prompt, answer = chance.choice(lengths) if load.others else lengths[0]
        yield at, [chance.randrange(3, _WORDS) for _ in range(prompt)], answer


def measure(url: str, loads: list[Load], seed: int = 1, *, each: bool = False) -> None:
    """Run loads, one after the other, and print what each gave."""
    with urlopen(f"{url}/v1/models", timeout=60) as answer:  # noqa: S310 - an address of the command line
        model = json.load(answer)["data"][0]["id"]
    for load in loads:
        sys.stdout.write(json.dumps(asyncio.run(run([url], model, load, seed, each=each))) + "\n")
        sys.stdout.flush()
        time.sleep(_PAUSE_S)


async def run(urls: list[str], model: str, load: Load, seed: int = 1, *, each: bool = False) -> dict[str, Any]:
    """Send a load, and report its times in ms.

    Args:
        urls: Of the servers, which get requests in turn.
        model: Its name for the model.
        load: What to send.
        seed: Of the arrivals and prompts.
        each: Whether to report every request, too: when it was sent, its time to the first token, its whole time (all
            in seconds), its events, its prompt tokens, and which turn of a conversation it is.
    """
    chance, requests = random.Random(seed), list[Request]()
    coming = [(at, prompt, answer, _body(model, load, prompt, answer)) for at, prompt, answer in arrivals(load, chance)]
    start, tasks = time.monotonic(), []
    last = start + load.warm_up + load.counted

    async def talk(url: str, prompt: list[int], answer: int, body: bytes, chance: random.Random) -> None:
        for turn in range(load.turns):
            requests.append(request := Request(answer, len(prompt), turn))
            await _ask(url, body, request)
            prompt = prompt + request.text + [chance.randrange(3, _WORDS) for _ in range(load.added)]
            body = _body(model, load, prompt, answer)
            await asyncio.sleep(_THOUGHT_S if turn + 1 < load.turns else 0)
            if time.monotonic() > last:
                return

    for (at, prompt, answer, body), url in zip(coming, itertools.cycle(urls), strict=False):
        await asyncio.sleep(max(0.0, start + at - time.monotonic()))
        tasks.append(asyncio.create_task(talk(url, prompt, answer, body, random.Random(at))))
    left = load.drain + start + load.warm_up + load.counted - time.monotonic()
    _, late = await asyncio.wait(tasks, timeout=max(0.0, left))
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    found = _report(load, requests, start + load.warm_up)
    return found | {"each": [_times(request, start) for request in requests if request.is_whole]} if each else found


def _body(model: str, load: Load, prompt: list[int], answer: int) -> bytes:
    asked = {"model": model, "prompt": prompt, "max_tokens": answer, "ignore_eos": True, "temperature": 0}
    asked |= {"return_token_ids": True} if load.turns > 1 else {}
    return json.dumps(asked | {"stream": True}).encode()


def _times(request: Request, start: float) -> tuple[float, float, float, int, int, int]:
    first, last = request.tokens[0] - request.sent, request.tokens[-1] - request.sent
    times = round(request.sent - start, 4), round(first, 4), round(last, 4)
    return *times, len(request.tokens), request.prompt, request.turn


async def _ask(url: str, body: bytes, request: Request) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {parts.hostname}\r\nContent-Type: application/json\r\n"
    try:
        request.sent = time.monotonic()
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        rest = b""
        while chunk := await reader.read(_CHUNK):
            now = time.monotonic()
            request.tokens += [now] * chunk.count(b'"index":0')
            rest += chunk
            request.ended = request.ended or b"[DONE]" in chunk
        found = _TOKEN_IDS.findall(rest)
        request.text = [int(token) for tokens in found for token in tokens.split(b",") if token]
    finally:
        writer.close()


def _report(load: Load, requests: list[Request], counted_from: float) -> dict[str, Any]:
    counted = [request for request in requests if request.sent >= counted_from]
    whole = [request for request in counted if request.is_whole]
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
        "tpot": [(request.tokens[-1] - request.tokens[0]) / (request.answer - 1) for request in whole],
        "gap": gaps,
        "whole": [request.tokens[-1] - request.sent for request in whole],
    }
    if load.turns > 1:
        columns["first_turn_ttft"] = [one.tokens[0] - one.sent for one in whole if not one.turn]
        columns["later_turn_ttft"] = [one.tokens[0] - one.sent for one in whole if one.turn]
    times = {name: _percentiles(values) for name, values in columns.items() if len(values) > 1}
    ends = [request.tokens[-1] for request in requests if request.is_whole]
    within = sum(counted_from <= end < counted_from + load.counted for end in ends)
    counts = {"requests": len(counted), "incomplete": len(counted) - len(whole)}
    return vars(load) | counts | {"finished_a_second": round(within / load.counted, 2)} | times


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
