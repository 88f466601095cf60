"""A D server and then P killed under load: `python -m benchmarks.on_gpu.faults`. Requests are counted by outcome.

The servers run already (`benchmarks.on_gpu.servers`); those that were killed are not started again. Our router has
`--migration`. Both routers get the same load at the same time by default. They share P, so one can disturb the other.
"""

import argparse
import asyncio
import json
import random
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass

import aiohttp
import uvloop

from benchmarks.on_gpu.routers import Router, routers
from benchmarks.on_gpu.servers import HOST, MODEL, kill

_CLIENTS = 16
_TOKENS = 300
_AFTER_S = 8.0


@dataclass
class Answer:
    """How a request ended.

    Attributes:
        outcome: `whole`, or the failure.
        began: Seconds after the start of the load.
        first: Seconds until the first token.
        gap: The longest time between two reads, in seconds.
    """

    outcome: str
    began: float
    first: float = 0.0
    gap: float = 0.0


async def ask(client: aiohttp.ClientSession, port: int, zero: float) -> Answer:
    """One stream of 300 tokens, at temperature 0."""
    prompt = [random.randrange(3, 32000) for _ in range(600)]
    body = {"model": MODEL, "prompt": prompt, "max_tokens": _TOKENS, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    began = last = time.monotonic()
    answer, tail, usage = Answer("cut silently", began - zero), b"", 0
    try:
        async with client.post(f"http://{HOST}:{port}/v1/completions", json=body) as response:
            if response.status != 200:
                answer.outcome = f"status {response.status}"
                return answer
            async for line in response.content:
                now = time.monotonic()
                answer.first = answer.first or now - began
                answer.gap = max(answer.gap, now - last) if tail else 0.0
                last, tail = now, line.strip() or tail
                if b'"error"' in line:
                    answer.outcome = "error event"
                    return answer
                if b'"usage":{' in line:
                    usage = json.loads(line.removeprefix(b"data: "))["usage"]["completion_tokens"]
    except (aiohttp.ClientError, TimeoutError) as error:
        answer.outcome = f"connection: {type(error).__name__}"
        return answer
    if tail == b"data: [DONE]":
        answer.outcome = "whole" if usage == _TOKENS else f"{usage} tokens"
    return answer


async def load(port: int, zero: float, seconds: float) -> list[Answer]:
    """Some clients that ask again and again."""
    answers: list[Answer] = []

    async def one(client: aiohttp.ClientSession) -> None:
        while time.monotonic() < zero + seconds:
            answer = await ask(client, port, zero)
            answers.append(answer)
            if answer.outcome != "whole":
                await asyncio.sleep(0.2)

    timeout = aiohttp.ClientTimeout(total=90)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as client:
        await asyncio.gather(*(one(client) for _ in range(_CLIENTS)))
    return answers


async def fault(found: dict[str, Router], victim: str, seconds: float) -> None:
    """Kill a server amid the load, and print what became of the requests."""
    zero = time.monotonic()
    tasks = {name: asyncio.create_task(load(one.port, zero, seconds)) for name, one in found.items()}
    await asyncio.sleep(_AFTER_S)
    kill(victim)
    print(f"{victim} killed after {_AFTER_S:g} s of {seconds:g}")
    for name, task in tasks.items():
        answers = await task
        print(f"  {name}: {len(answers)} requests, {dict(Counter(one.outcome for one in answers))}")
        bad = [one.began for one in answers if one.outcome != "whole"]
        after = [one for one in answers if one.outcome == "whole" and one.began + one.first > _AFTER_S - 3]
        if bad:
            print(f"    those that failed began {min(bad):.1f} to {max(bad):.1f} s after the start")
        if after:
            worst = max(one.first for one in after), max(one.gap for one in after)
            print(f"    of the whole ones, first token at most {worst[0]:.2f} s, longest gap {worst[1]:.2f} s")


def print_metrics(router: Router) -> None:
    """Our router's counters of failures, since its start."""
    with urllib.request.urlopen(f"http://{HOST}:{router.state_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    names = ("router_requests_total", "router_pod_failures_total", "router_prefill_fallbacks_total", "migrations_total")
    print("\n".join(f"    {line}" for line in lines if line.split("{")[0].split(" ")[0].endswith(names)), flush=True)


def main() -> None:
    """Kill the servers, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", nargs="*", default=["d1", "p"])
    parser.add_argument("--decode", nargs="*", default=["d1", "d2"])
    parser.add_argument("--seconds", type=float, default=22)
    parser.add_argument("--routers", nargs="*", default=["pdinference", "vllm-router"], help="those that get load")
    arguments = parser.parse_args()
    with routers(arguments.decode, "--migration") as found:
        for victim in arguments.victims:
            uvloop.run(fault({name: found[name] for name in arguments.routers}, victim, arguments.seconds))
            print_metrics(found["pdinference"])


if __name__ == "__main__":
    main()
