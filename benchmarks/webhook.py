"""How fast the webhook answers, and how long it holds up the event loop: `uv run python -m benchmarks.webhook`.

No cluster is needed. A second process posts reviews of several kinds to the webhook in this one, `IN_FLIGHT` at a time.
The same reviews are examined in a thread of this process as well, as it was before the isolated process, so that the
ratio of the two does not depend on the machine. Meanwhile a task measures how late the event loop calls it.
"""

import argparse
import asyncio
import json
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from benchmarks.memory import family_pss_mib
from pdinference.admission.review import review_tasks
from pdinference.admission.webhook import admission_routes
from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor
from pdinference.examination.tasks import PROGRAM
from pdinference.isolation.calls import Calls, EndedError
from pdinference.isolation.process import ChildProgram, IsolatedProcess, LaneLimits
from pdinference.manifests import RenderSettings

EXAMPLE = Path(__file__).parent.parent / "examples" / "tiny-cpu.yaml"
IN_FLIGHT = 8


class InThread:
    """As it was before: examined in a thread of this process, without limits."""

    def __init__(self) -> None:
        self._tasks = review_tasks(RenderSettings())

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        """Call a function."""
        try:
            return await asyncio.to_thread(self._tasks[task], payload)
        except Exception as error:
            raise EndedError(repr(error)) from error


@dataclass(frozen=True)
class Result:
    """Of one kind of review."""

    per_second: float
    p50_ms: float
    p99_ms: float
    loop_lag_ms: float
    refused: int


def reviews() -> dict[str, bytes]:
    """Bodies by name."""
    document = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    made = json.dumps(document)

    def with_spec(spec: str) -> str:
        head = json.dumps({**document, "spec": 0})
        return head[: head.rindex("0")] + spec + "}"

    many = with_spec('{"x":[%s{}]}' % ("{}," * 15_000))
    return {
        "ordinary": _review(made),
        "only labels change, 1.3 MB stored": _review(*2 * [with_spec(json.dumps({"x": "y" * 1_300_000}))]),
        "15,000 empty objects": _review(many),
        "1.3 MB": _review(with_spec(json.dumps({"x": "y" * 1_300_000}))),
        "3 MB of empty objects": _review(with_spec('{"x":[%s{}]}' % ("{}," * 1_000_000))),
        "100,000 levels": _review(with_spec('{"a":' * 100_000 + "1" + "}" * 100_000)),
    }


def _review(new: str, old: str = "null") -> bytes:
    head = '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","namespace":"models",'
    return f'{head}"object":{new},"oldObject":{old}}}}}'.encode()


async def measure(calls: Calls, count: int) -> dict[str, Result]:
    """Let another process post `count` reviews of each kind."""
    app = web.Application(client_max_size=16 * 2**20)
    app.add_routes(admission_routes(calls, CollectorRegistry()))
    async with TestServer(app) as server:
        url = str(server.make_url("/validate"))
        return {name: await _kind(url, name, count) for name in reviews()}


async def _kind(url: str, name: str, count: int) -> Result:
    command = [sys.executable, "-m", "benchmarks.webhook", str(count), "--post", url, "--kind", name]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    await process.stdout.readline()  # its imports are done
    async with _lag() as worst:
        process.stdin.close()
        found = json.loads(await process.stdout.read())
    cuts = statistics.quantiles(found["seconds"], n=100)
    return Result(count / found["took"], 1e3 * cuts[49], 1e3 * cuts[98], 1e3 * worst(), found["refused"])


async def _post(url: str, name: str, count: int) -> None:
    """The other process: reports what it measured as JSON."""
    body = reviews()[name]
    seconds: list[float] = []
    refused = 0
    numbers = iter(range(count))
    print("ready", flush=True)
    sys.stdin.read()

    async def lane() -> None:
        nonlocal refused
        for _ in numbers:
            started = time.perf_counter()
            async with session.post(url, data=body) as response:
                refused += not (await response.json())["response"]["allowed"]
            seconds.append(time.perf_counter() - started)

    async with aiohttp.ClientSession() as session:
        started = time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
        took = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "refused": refused, "took": took}))


@asynccontextmanager
async def _lag() -> AsyncIterator[Callable[[], float]]:
    """How late the loop was at most."""
    worst = 0.0

    async def look() -> None:
        nonlocal worst
        while True:
            due = time.perf_counter() + 0.005
            await asyncio.sleep(0.005)
            worst = max(worst, time.perf_counter() - due)

    task = asyncio.create_task(look())
    try:
        yield lambda: worst
    finally:
        task.cancel()


async def _compare(count: int) -> None:
    threads = await measure(InThread(), count)
    process = IsolatedProcess(
        ChildProgram(PROGRAM, RenderSettings()), {"admission": LaneLimits(2, 60, 60)}, CollectorRegistry()
    )
    async with Supervisor(Metrics()).running("isolated-process", process.keep()):
        await process.ready.wait()
        isolated = await measure(process.lanes["admission"], count)
        memory = family_pss_mib(process.pid)
    for name, after in isolated.items():
        before = threads[name]
        print(
            f"{name}: {after.refused} of {count} refused; {after.per_second / before.per_second:.0%} of a thread's rate"
        )
        for label, found in (("in a thread", before), ("isolated", after)):
            print(
                f"  {label:12}{found.per_second:7.0f}/s  p50 {found.p50_ms:6.1f} ms  p99 {found.p99_ms:6.1f} ms"
                f"  loop late by {found.loop_lag_ms:5.1f} ms at most"
            )
    print(f"isolated process and workers, PSS in MiB: {', '.join(f'{pss:.0f}' for pss in memory)}")
    print(f"this process at most, RSS in MiB: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description="Measure the webhook.")
    parser.add_argument("count", nargs="?", type=int, default=400, help="reviews of each kind (default: 400)")
    parser.add_argument("--post", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.post:
        asyncio.run(_post(arguments.post, arguments.kind, arguments.count))
    else:
        asyncio.run(_compare(arguments.count))


if __name__ == "__main__":
    main()
