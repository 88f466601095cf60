"""Which pods requests get by the policies of our router, and of vllm-router: `benchmarks.routers policies`.

Small servers play two P pods, which compute one prompt at a time, and four D pods, of which one is four times slower.
200 streamed requests, 18 a second, Poisson. Each case runs with our policies, and with vllm-router as the operator used
it before: P in turns, D by the requests that it has sent (`kv_aware`).
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web

from benchmarks.fake_vllm import CHUNKS, END, HANDED_OVER, answering
from benchmarks.processes import HOST
from benchmarks.routers.launch import OURS, VLLM, Tools, router_of

_PATH: Final = "/v1/completions"
_REQUESTS, _RATE = 200, 18.0
_DECODE_S = (0.3, 0.3, 0.3, 1.2)
_POLICIES: Final = ("least_loaded", "round_robin", "power_of_two", "cache_aware", "consistent_hash")


@dataclass(frozen=True)
class Case:
    """A kind of load.

    Attributes:
        prefill: Seconds of each P pod for a prompt of so many words.
        words: Number of words of a prompt.
    """

    name: str
    prefill: Sequence[Callable[[int], float]]
    words: Callable[[random.Random], int]


def _same(seconds: float) -> Callable[[int], float]:
    return lambda _words: seconds


def _by_length(words: int) -> float:
    return words * 2e-5


CASES: Final = (
    Case("P alike, 50 ms", (_same(0.05), _same(0.05)), lambda _chance: 100),
    Case("P 50 and 150 ms", (_same(0.05), _same(0.15)), lambda _chance: 100),
    Case("prompts of 20 ms, one in ten of 600 ms", (_by_length, _by_length),
         lambda chance: 30_000 if chance.random() < 0.1 else 1000),
)  # fmt: skip


@dataclass
class Pod:
    """A server.

    Attributes:
        seconds: For a prompt of so many words in P; of an answer in D.
        one_at_a_time: Whether it is P.
        requests: Number of requests that it had.
    """

    seconds: Callable[[int], float]
    one_at_a_time: bool
    requests: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as P or D."""
        self.requests += 1
        body: dict[str, Any] = await request.json()
        takes = self.seconds(len(body["prompt"].split()))
        if self.one_at_a_time:
            async with self._turn:
                await asyncio.sleep(takes)
            return web.json_response({"choices": [{"text": "a"}], "kv_transfer_params": HANDED_OVER})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(CHUNKS[_PATH])
        await asyncio.sleep(takes)
        await response.write(END)
        return response


async def run(tools: Tools, case: Case, router: str, *options: str) -> str:
    """A row of the table."""
    p = [Pod(seconds, one_at_a_time=True) for seconds in case.prefill]
    d = [Pod(_same(seconds), one_at_a_time=False) for seconds in _DECODE_S]
    async with AsyncExitStack() as stack:
        ports_p = [await stack.enter_async_context(answering(_PATH, pod.answer)) for pod in p]
        ports_d = [await stack.enter_async_context(answering(_PATH, pod.answer)) for pod in d]
        starting = router_of(router, tools, ports_d, ports_p, "m", *options)
        found = await asyncio.to_thread(stack.enter_context, starting)
        client = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
        for pod in (*p, *d):
            pod.requests = 0  # of the router's own checks
        chance = random.Random(1)
        url = f"http://{HOST}:{found.port}{_PATH}"

        async def one(number: int, words: int) -> tuple[float, float]:
            body = {"model": "m", "prompt": f"{number} " + "word " * words, "stream": True, "max_tokens": 1}
            began = time.perf_counter()
            async with client.post(url, json=body, headers={"X-Session-Id": str(number % 50)}) as answer:
                answer.raise_for_status()
                await answer.content.readany()
                first = time.perf_counter()
                await answer.read()
            return first - began, time.perf_counter() - began

        tasks = []
        for number in range(_REQUESTS):
            tasks.append(asyncio.create_task(one(number, case.words(chance))))
            await asyncio.sleep(chance.expovariate(_RATE))
        times = await asyncio.gather(*tasks)
    chosen = [", ".join(str(pod.requests) for pod in pods) for pods in (p, d)]
    shares = [statistics.quantiles(values, n=100) for values in zip(*times, strict=True)]
    return " | ".join([*chosen, *(f"{share[49]:.2f} / {share[94]:.2f}" for share in shares)])


async def table(tools: Tools) -> None:
    """Print a table in Markdown."""
    print("| case | router | P | D | first token p50 / p95 s | whole request p50 / p95 s |")
    print("| --- | --- | --- | --- | --- | --- |")
    theirs = ("--policy=round_robin", "--decode-policy=kv_aware")
    for case in CASES:
        print(f"| {case.name} | vllm-router | {await run(tools, case, VLLM, *theirs)} |", flush=True)
        for policy in _POLICIES:
            print(f"| {case.name} | `{policy}` | {await run(tools, case, OURS, f'--policy={policy}')} |", flush=True)
