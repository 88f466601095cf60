"""What a router adds to a request: time until the first token, CPU, memory with open streams. Fake servers answer.

Each round gives the same load to the servers without a router, and to each router in turn.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import aiohttp

from benchmarks.routers import client
from benchmarks.routers.launch import Router, Tools, router_of
from benchmarks.routers.servers import fakes

DIRECT: Final = "no router"
_PROMPT: Final = "word " * 800
_ALONE, _CHUNKS, _PAUSE_MS = 150, 100, 20
_FAST, _FAST_AT_ONCE, _FAST_CHUNKS = 16, 8, 2000
_BEGIN_S: Final = 4.0


def measure(tools: Tools, names: Sequence[str], rounds: int, streams: int, *, split: bool) -> Iterator[dict[str, Any]]:
    """A row for each router and round; the first round warms up and is left out.

    Args:
        tools: The other routers.
        names: Of the routers.
        rounds: How many.
        streams: How many streams run at a time.
        split: Whether requests go through P and D.
    """
    with ExitStack() as stack:
        d, p = stack.enter_context(fakes(4)), stack.enter_context(fakes(2)) if split else []
        routers = [stack.enter_context(router_of(name, tools, d, p)) for name in names]
        for number in range(rounds + 1):
            for router in [None, *routers][:: 1 if number % 2 else -1]:
                row = _round(router.port if router else d[0], router, streams)
                if number:
                    yield {"router": router.name if router else DIRECT, "round": number, "split": split} | row


def _round(port: int, router: Router | None, streams: int) -> dict[str, Any]:
    used = router.cpu_seconds() if router else 0.0
    alone = asyncio.run(_one_at_a_time(port))
    between = router.cpu_seconds() if router else 0.0
    crowd = asyncio.run(_crowd(port, streams))
    after = router.cpu_seconds() if router else 0.0
    asyncio.run(_fast(port))
    end = router.cpu_seconds() if router else 0.0
    first, many = [one.first for one in alone], [one.first for one in crowd[streams:]]
    return {
        "first_ms": 1000 * client.percentile(first, 50),
        "first_p99_ms": 1000 * client.percentile(first, 99),
        "crowd_ms": 1000 * client.percentile(many, 50),
        "crowd_p99_ms": 1000 * client.percentile(many, 99),
        "request_cpu_us": 1e6 * (between - used) / len(alone),
        "chunk_cpu_us": 1e6 * (after - between) / (len(crowd) * _CHUNKS),
        "fast_chunk_cpu_us": 1e6 * (end - after) / (_FAST * _FAST_CHUNKS),
    }


async def _one_at_a_time(port: int) -> list[client.Answer]:
    asked = client.body(_PROMPT, 1)
    async with client.session() as session:
        answers = [await client.ask(session, port, asked, time.monotonic()) for _ in range(_ALONE)]
    return _all_whole(answers)


async def _crowd(port: int, streams: int) -> list[client.Answer]:
    """As many streams run as begin in the time that one takes."""
    asked = client.body(_PROMPT, _CHUNKS, pause_ms=_PAUSE_MS)
    apart = _CHUNKS * _PAUSE_MS / 1000 / streams
    return _all_whole(await client.send(port, [number * apart for number in range(3 * streams)], lambda _: asked))


async def _fast(port: int) -> None:
    """Streams of chunks as fast as the servers can send them."""
    asked, turns = client.body(_PROMPT, _FAST_CHUNKS), asyncio.Semaphore(_FAST_AT_ONCE)

    async def one(session: aiohttp.ClientSession) -> client.Answer:
        async with turns:
            return await client.ask(session, port, asked, time.monotonic())

    async with client.session() as session:
        _all_whole(await asyncio.gather(*(one(session) for _ in range(_FAST))))


def _all_whole(answers: list[client.Answer]) -> list[client.Answer]:
    bad = {one.outcome for one in answers} - {client.WHOLE}
    if bad:
        raise SystemExit(f"answers were not whole: {bad}")
    return answers


def memory(tools: Tools, names: Sequence[str], streams: int, seconds: int) -> Iterator[dict[str, Any]]:
    """MiB (PSS) of each router at rest, while so many streams are open, and after them."""
    with fakes(4) as d:
        for name in names:
            with router_of(name, tools, d) as router:
                yield {"router": name} | asyncio.run(_hold(router, streams, seconds))


async def _hold(router: Router, streams: int, seconds: int) -> dict[str, Any]:
    asked, idle = client.body(_PROMPT, seconds, pause_ms=1000), router.mib()
    times = [_BEGIN_S * number / streams for number in range(streams)]
    sending = asyncio.create_task(client.send(router.port, times, lambda _: asked))
    found = []
    while not sending.done():
        await asyncio.wait((sending,), timeout=2)
        found.append(router.mib())
    _all_whole(await sending)
    return {"idle": idle, "streams": max(found), "after": router.mib()}
