"""The router beside vllm-router in one run: `uv run --no-sync python -m benchmarks.router`.

Processes on this machine: servers that play one P and two D pods, a router, and this client. vllm-router 0.1.17 and our
router get the same requests, in turn, round by round. Printed are ratios and differences, because the machine decides
the rest:

- first token: requests one at a time to pods that answer at once; the median and the 99th percentile;
- streams: many at a time, each with a chunk every few milliseconds; the delay of the first token;
- CPU: what the router's process used for a chunk, of these streams, and while the pods send as fast as they can;
- two processes: two of our routers on a core each, both with half of these streams at once;
- open streams: many, for a minute, with a chunk every second; memory of the router meanwhile.

The answer of each request has to be complete.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import uvloop

from benchmarks.fake_vllm import CHUNKS, END
from benchmarks.memory import cpu_seconds, status_mib
from benchmarks.processes import HOST, ports, running

_PATH = "/v1/completions"
_PROMPT = "word " * 800
OURS, THEIRS = "pdinference", "vllm-router"


@dataclass(frozen=True)
class Load:
    """Requests of one kind.

    Attributes:
        requests: How many.
        at_once: How many of them at a time.
        chunks: Chunks of each answer.
        pause_ms: Between two chunks; 0 is as fast as they can be sent.
        apart_ms: Between the beginnings of two requests.
    """

    requests: int
    at_once: int
    chunks: int
    pause_ms: int
    apart_ms: float = 0

    @classmethod
    def steady(cls, streams: int) -> "Load":
        """As many streams run as begin in the time that one takes: 100 chunks, 20 ms apart."""
        return cls(3 * streams, 3 * streams, 100, 20, 2000 / streams)

    @property
    def all_chunks(self) -> int:
        """Chunks of all answers."""
        return self.requests * self.chunks


_FAST = Load(16, 8, 2000, 0)


@dataclass(frozen=True)
class Router:
    """A process of a router."""

    port: int
    pid: int


@dataclass
class Result:
    """What was measured of one router."""

    first_ms: list[float] = field(default_factory=list)
    crowd_ms: list[float] = field(default_factory=list)
    crowd_us: list[float] = field(default_factory=list)
    fast_us: list[float] = field(default_factory=list)
    fast_rate: list[float] = field(default_factory=list)
    start_mib: float = 0.0
    open_mib: list[float] = field(default_factory=list)
    end_mib: float = 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=200, help="streams at a time")
    parser.add_argument("--open-streams", type=int, default=1000, help="streams that stay open; 0 leaves this out")
    parser.add_argument("--open-seconds", type=int, default=60)
    arguments = parser.parse_args()
    uvloop.run(compare(arguments.rounds, arguments.streams, arguments.open_streams, arguments.open_seconds))


async def compare(rounds: int, streams: int, open_streams: int, open_seconds: int) -> None:
    """Both routers, in turn."""
    p, *d = engines = ports(3)
    results = {OURS: Result(), THEIRS: Result()}
    async with AsyncExitStack() as stack:
        stack.enter_context(running([sys.executable, "-m", "benchmarks.fake_vllm", *map(str, engines)]))
        routers = {name: await stack.enter_async_context(router_of(name, (p,), d)) for name in results}
        second = await stack.enter_async_context(router_of(OURS, (p,), d))
        for name, router in routers.items():
            results[name].start_mib = status_mib(router.pid, "VmRSS")
        for number in range(rounds + 1):
            for name, router in routers.items():
                await one_round(router, results[name] if number else Result(), streams)  # the first one warms up
        both = await side_by_side((routers[OURS], second), Load.steady(streams // 2))
        for name, router in routers.items():
            if open_streams:
                results[name].open_mib = await hold(router, open_streams, open_seconds)
            results[name].end_mib = status_mib(router.pid, "VmRSS")
    report(results[OURS], results[THEIRS], both)


async def one_round(router: Router, result: Result, streams: int) -> None:
    """All kinds of load, once."""
    result.first_ms += await send(router.port, Load(200, 1, 1, 0))
    crowd = Load.steady(streams)
    used = cpu_seconds(router.pid)
    result.crowd_ms += (await send(router.port, crowd))[streams:]
    result.crowd_us.append(1e6 * (cpu_seconds(router.pid) - used) / crowd.all_chunks)
    used, began = cpu_seconds(router.pid), time.perf_counter()
    await send(router.port, _FAST)
    result.fast_us.append(1e6 * (cpu_seconds(router.pid) - used) / _FAST.all_chunks)
    result.fast_rate.append(_FAST.all_chunks / (time.perf_counter() - began))


async def side_by_side(routers: Sequence[Router], load: Load) -> list[float]:
    """Microseconds of CPU for a chunk of each router, with a load for each at once, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    for number, router in enumerate(routers):
        os.sched_setaffinity(router.pid, {cores[number % len(cores)]})
    used = [cpu_seconds(router.pid) for router in routers]
    await asyncio.gather(*(send(router.port, load) for router in routers))
    found = [
        1e6 * (cpu_seconds(router.pid) - before) / load.all_chunks for router, before in zip(routers, used, strict=True)
    ]
    for router in routers:
        os.sched_setaffinity(router.pid, cores)
    return found


async def hold(router: Router, streams: int, seconds: int) -> list[float]:
    """Resident memory every five seconds while the streams are open."""
    sending = asyncio.create_task(send(router.port, Load(streams, streams, seconds, 1000, 2000 / streams)))
    await asyncio.sleep(5)
    found = []
    while not sending.done():
        found.append(status_mib(router.pid, "VmRSS"))
        await asyncio.wait((sending,), timeout=5)
    await sending
    return found


async def send(port: int, load: Load) -> list[float]:
    """Milliseconds until the first token of each request."""
    slots = asyncio.Semaphore(load.at_once)
    body = {"model": "m", "prompt": _PROMPT, "stream": True, "max_tokens": load.chunks, "seed": load.pause_ms}

    async def one(client: aiohttp.ClientSession, number: int) -> float:
        await asyncio.sleep(number * load.apart_ms / 1000)
        async with slots:
            began, first, length = time.perf_counter(), 0.0, 0
            async with client.post(f"http://{HOST}:{port}{_PATH}", json=body) as answer:
                answer.raise_for_status()
                async for chunk in answer.content.iter_any():
                    first = first or time.perf_counter()
                    length += len(chunk)
            if length != load.chunks * len(CHUNKS[_PATH]) + len(END):
                raise SystemExit(f"{length} bytes of an answer came")
            return 1000 * (first - began)

    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as client:
        return list(await asyncio.gather(*(one(client, number) for number in range(load.requests))))


@asynccontextmanager
async def router_of(name: str, p: Sequence[int], d: Sequence[int], *options: str) -> AsyncIterator[Router]:
    """A router process with pods at these ports."""
    port, state = ports(2)
    scripts = Path(sys.executable).parent
    if name == THEIRS:
        line = [str(scripts / "vllm-router"), "--vllm-pd-disaggregation", "--kv-connector=nixl", f"--port={port}"]
        line += [f"--prometheus-port={state}", "--policy=round_robin", "--decode-policy=kv_aware", "--log-level=error"]
        line += [*(f"--prefill=http://{HOST}:{one}" for one in p), *(f"--decode=http://{HOST}:{one}" for one in d)]
        ready = f"http://{HOST}:{port}/readiness"
    else:
        line = [str(scripts / "pdinference"), "router", "run", f"--port={port}", f"--state-port={state}"]
        line += [*(f"--parameter={HOST}:{one}" for one in p), *(f"--decode={HOST}:{one}" for one in d), *options]
        line += ["--verification=Off"]  # the engines are not vLLM
        ready = f"http://{HOST}:{state}/readyz"
    with running(line) as process:
        async with aiohttp.ClientSession(trust_env=False) as client:
            await until_ready(client, ready)
        yield Router(port, process.pid)


async def until_ready(client: aiohttp.ClientSession, url: str) -> None:
    """Wait until a URL answers with 200."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            async with client.get(url) as answer:
                if answer.ok:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


def report(ours: Result, theirs: Result, both: Sequence[float]) -> None:
    """Print a line for each number."""

    def line(what: str, mine: float, other: float, unit: str) -> None:
        print(f"{what:<48}{mine:>10.2f}{other:>14.2f} {unit}")

    print(f"{'':<48}{OURS:>10}{THEIRS:>14}")
    for what, mine, other in (
        ("first token, one at a time", ours.first_ms, theirs.first_ms),
        ("first token, many streams", ours.crowd_ms, theirs.crowd_ms),
    ):
        line(f"{what}, median", statistics.median(mine), statistics.median(other), "ms")
        line(f"{what}, p99", _p99(mine), _p99(other), "ms")
    for what, mine, other in (
        ("a chunk of many streams", ours.crowd_us, theirs.crowd_us),
        ("a chunk at full speed", ours.fast_us, theirs.fast_us),
    ):
        mine_us, other_us = statistics.median(mine), statistics.median(other)
        line(f"{what}, CPU", mine_us, other_us, "us")
        line(f"{what}, one core", 1e6 / mine_us, 1e6 / other_us, "/s")
    line("chunks, pods and client too", statistics.median(ours.fast_rate), statistics.median(theirs.fast_rate), "/s")
    cores = ", ".join(f"{1e6 / us:,.0f}" for us in both)
    print(f"two processes with half of the streams each: {cores} chunks/s of a core")
    line("resident, at the start", ours.start_mib, theirs.start_mib, "MiB")
    for name, result in ((OURS, ours), (THEIRS, theirs)):
        print(f"resident while streams are open, {name}: {', '.join(f'{mib:.1f}' for mib in result.open_mib)} MiB")
    line("resident, at the end", ours.end_mib, theirs.end_mib, "MiB")


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


if __name__ == "__main__":
    main()
