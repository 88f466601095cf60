"""What the activator adds to a request: `uv run python -m benchmarks.activator`.

Three processes on this machine: this client, the activator as in a router's pod, and a server that answers at once in
place of vllm-router. Requests of 4 KiB go one at a time, in turn to the server itself and through the activator, so
that a noisy moment meets both.
"""

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path

import aiohttp
from aiohttp import web

from benchmarks.processes import HOST, ports, running

_BODY = b"x" * 4096


def main() -> None:
    """Print the medians and their difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    router, front, state = ports(3)
    served = [sys.executable, "-m", "benchmarks.activator", f"--serve={router}"]
    activator = [str(Path(sys.executable).with_name("pdinference")), "activator", "run", f"--host={HOST}"]
    places = [f"--port={front}", f"--state-port={state}", f"--router-port={router}"]
    with running(served), running([*activator, *places]):
        direct, through = asyncio.run(measure(router, front, arguments.requests))
    print(f"direct {direct:.2f} ms, through the activator {through:.2f} ms, {through - direct:.2f} ms more")


def serve(port: int) -> None:
    """Answer at once, as vllm-router with a pair would."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text="answer")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    web.run_app(app, host=HOST, port=port, access_log=None, print=None)


async def measure(router: int, front: int, count: int) -> tuple[float, float]:
    """The median of each in milliseconds, once both answer."""
    times: dict[int, list[float]] = {router: [], front: []}
    async with aiohttp.ClientSession(trust_env=False) as client:
        for port in times:
            await answers(client, port)
        for _ in range(count):
            for port, seconds in times.items():
                start = time.perf_counter()
                async with client.post(f"http://{HOST}:{port}/v1/completions", data=_BODY) as response:
                    await response.read()
                    response.raise_for_status()
                seconds.append(time.perf_counter() - start)
    direct, through = (1000 * statistics.median(seconds) for seconds in times.values())
    return direct, through


async def answers(client: aiohttp.ClientSession, port: int) -> None:
    """Wait for the first answer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            async with client.post(f"http://{HOST}:{port}/v1/completions", data=_BODY) as response:
                if response.ok:
                    return
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(0.1)
    raise TimeoutError(f"Port {port} does not answer.")


if __name__ == "__main__":
    main()
