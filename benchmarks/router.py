"""The router beside vllm-router in one run: `make benchmark-router`, or `uv run python -m benchmarks.router`.

Processes on this machine: servers that play one P and two D pods, a router, and this client. vllm-router 0.1.17 and our
router get the same requests, in turn, round by round. Printed are ratios and differences, because the machine decides
the rest:

- first token: requests one at a time to pods that answer at once; the median and the 99th percentile;
- streams: many at a time, each with a chunk every few milliseconds; the delay of the first token and lost chunks;
- CPU: what the router's process used for a chunk of a stream, while the pods send as fast as they can;
- memory: resident size before, and after all of it.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import uvloop
from aiohttp import web

from benchmarks.memory import cpu_seconds, status_mib
from benchmarks.processes import HOST, ports, running

_CHUNK = (
    b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" word",'
)
_CHUNK += b'"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null}],"usage":null}\n\n'
_END = b"data: [DONE]\n\n"
_PROMPT = "word " * 800


@dataclass
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
    pause_ms: float
    apart_ms: float = 0


@dataclass
class Result:
    """What was measured of one router."""

    first_ms: list[float] = field(default_factory=list)
    crowd_ms: list[float] = field(default_factory=list)
    chunk_us: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    rss_mib: tuple[float, float] = (0.0, 0.0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=200, help="streams at a time")
    parser.add_argument("--engine", type=int, nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        uvloop.run(play(arguments.engine))
        return
    results = uvloop.run(compare(arguments.rounds, arguments.streams))
    report(results)


async def play(places: list[int]) -> None:
    """Serve as P and D on these ports until killed."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("stream"):
            params = {"do_remote_prefill": True, "remote_engine_id": "p", "remote_block_ids": [1]}
            return web.json_response({"choices": [{"text": "a"}], "kv_transfer_params": params})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        pause = float(body["seed"]) / 1000
        for _ in range(body["max_tokens"]):
            await response.write(_CHUNK)
            if pause:
                await asyncio.sleep(pause)
        await response.write(_END)
        return response

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(client_max_size=2**26)
    app.router.add_get("/health", healthy)
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    for port in places:
        await web.TCPSite(runner, HOST, port).start()
    await asyncio.Event().wait()


async def compare(rounds: int, streams: int) -> dict[str, Result]:
    """Both routers, in turn."""
    engines = ports(3)
    results = {"vllm-router": Result(), "pdinference": Result()}
    with running([sys.executable, "-m", "benchmarks.router", "--engine", *map(str, engines)]):
        async with router_of("vllm-router", engines) as theirs, router_of("pdinference", engines) as ours:
            routers = {"vllm-router": theirs, "pdinference": ours}
            before = {name: status_mib(pid, "VmRSS") for name, (_, pid) in routers.items()}
            for number in range(rounds + 1):
                for name, (port, pid) in routers.items():
                    await one_round(port, pid, results[name] if number else Result(), streams)  # the first one warms up
            for name, (_, pid) in routers.items():
                results[name].rss_mib = (before[name], status_mib(pid, "VmRSS"))
    return results


async def one_round(port: int, pid: int, result: Result, streams: int) -> None:
    """All kinds of load, once."""
    result.first_ms += await send(port, Load(200, 1, 1, 0))
    # In a steady state as many streams run as begin in the time that one takes: 100 chunks, 20 ms apart.
    result.crowd_ms += (await send(port, Load(3 * streams, 3 * streams, 100, 20, 2000 / streams)))[streams:]
    used, began = cpu_seconds(pid), time.perf_counter()
    load = Load(16, 8, 2000, 0)
    await send(port, load)
    chunks = load.requests * load.chunks
    result.chunk_us.append(1e6 * (cpu_seconds(pid) - used) / chunks)
    result.rate.append(chunks / (time.perf_counter() - began))


async def send(port: int, load: Load) -> list[float]:
    """Milliseconds until the first token of each request. Each answer has to be complete."""
    slots = asyncio.Semaphore(load.at_once)
    body = {"model": "m", "prompt": _PROMPT, "stream": True, "max_tokens": load.chunks, "seed": load.pause_ms}

    async def one(client: aiohttp.ClientSession, number: int) -> float:
        await asyncio.sleep(number * load.apart_ms / 1000)
        async with slots:
            began, first, length = time.perf_counter(), 0.0, 0
            async with client.post(f"http://{HOST}:{port}/v1/completions", json=body) as answer:
                answer.raise_for_status()
                async for chunk in answer.content.iter_any():
                    first = first or time.perf_counter()
                    length += len(chunk)
            if length != load.chunks * len(_CHUNK) + len(_END):
                raise SystemExit(f"{length} bytes of an answer came")
            return 1000 * (first - began)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False) as client:
        return list(await asyncio.gather(*(one(client, number) for number in range(load.requests))))


@asynccontextmanager
async def router_of(name: str, engines: list[int]) -> AsyncIterator[tuple[int, int]]:
    """A router process with one P and the rest as D: its port and process."""
    port, state = ports(2)
    (p, *d), scripts = engines, Path(sys.executable).parent
    if name == "vllm-router":
        line = [str(scripts / "vllm-router"), "--vllm-pd-disaggregation", "--kv-connector=nixl", f"--port={port}"]
        line += [f"--prometheus-port={state}", "--policy=round_robin", "--decode-policy=kv_aware", "--log-level=error"]
        line += [f"--prefill=http://{HOST}:{p}", *(f"--decode=http://{HOST}:{one}" for one in d)]
        ready = f"http://{HOST}:{port}/readiness"
    else:
        line = [str(scripts / "pdinference"), "router", "run", f"--port={port}", f"--state-port={state}"]
        line += [f"--prefill={HOST}:{p}", *(f"--decode={HOST}:{one}" for one in d)]
        ready = f"http://{HOST}:{state}/readyz"
    with running(line) as process:
        async with aiohttp.ClientSession(trust_env=False) as client:
            await until_ready(client, ready)
        yield port, process.pid


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


def report(results: dict[str, Result]) -> None:
    """Print a line for each number."""
    theirs, ours = results["vllm-router"], results["pdinference"]

    def line(what: str, mine: float, other: float, unit: str) -> None:
        print(f"{what:<38}{mine:>10.2f}{other:>14.2f} {unit}")

    print(f"{'':<38}{'pdinference':>10}{'vllm-router':>14}")
    for what, mine, other in (
        ("first token, one at a time", ours.first_ms, theirs.first_ms),
        ("first token, many streams", ours.crowd_ms, theirs.crowd_ms),
    ):
        line(f"{what}, median", statistics.median(mine), statistics.median(other), "ms")
        line(f"{what}, p99", _p99(mine), _p99(other), "ms")
    line("CPU for a chunk", statistics.median(ours.chunk_us), statistics.median(theirs.chunk_us), "us")
    line("chunks a second, pods and client too", statistics.median(ours.rate), statistics.median(theirs.rate), "/s")
    line(
        "chunks a second of one core",
        1e6 / statistics.median(ours.chunk_us),
        1e6 / statistics.median(theirs.chunk_us),
        "/s",
    )
    line("resident, at the start", ours.rss_mib[0], theirs.rss_mib[0], "MiB")
    line("resident, at the end", ours.rss_mib[1], theirs.rss_mib[1], "MiB")


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


if __name__ == "__main__":
    main()
