"""What 300 hostile pods of one tenant cost the operator's process, and the samples of another tenant.

    uv run python -m benchmarks.scraping                                   # this checkout
    git archive 2b1f09f operator | tar -x -C /tmp/before
    uv run python -m benchmarks.scraping --source /tmp/before/operator     # another one

For each kind of answer a process of its own scrapes 300 pods that answer so and 10 pods of another namespace that
answer as vLLM did. Three things are measured: the most CPU time between two turns of the event loop (wall time where it
never turned again), by how much memory grew, and the age of the oldest sample of the other tenant.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.controllers import owned
from tests.loadmetrics.hostile import READABLE, UNREADABLE, Answering, answer, at_limits, dense, metrics, pods, saying

KINDS: dict[str, Answering] = {
    "as vLLM": metrics(),
    "missing le": READABLE["missing le"],
    "as much as is kept": metrics(*at_limits()),
    "as many labels as are read": saying(answer(dense())),
    "a million empty lines": READABLE["a million empty lines"],
    "labels of 6 MiB": UNREADABLE["labels of 6 MiB"][1],
    "body of 8 MiB": UNREADABLE["body of 8 MiB"][1],
    "gzip bomb": UNREADABLE["gzip bomb"][1],
    "chunks of a byte": UNREADABLE["chunks of a byte"][1],
    "flood of 100 Continue": UNREADABLE["flood of 100 Continue"][1],
    "tarpit": UNREADABLE["tarpit"][1],
    "byte by byte": UNREADABLE["byte by byte"][1],
}
HOSTILE_ADDRESS, GOOD_ADDRESS = "127.77.0.1", "127.77.0.2"
HOSTILE, GOOD = 300, 10
_SETTLED_S = 8.0
_FIRST_S = 3.0
"""What is made once, such as pydantic's validators, is not counted."""
_STUCK_S = 3.0
"""More than a busy machine may take to give the process its turn."""


def main() -> None:
    """All kinds, or inside: the servers, or the scraper."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--source", type=Path, default=Path(__file__).parent.parent / "operator")
    arguments.add_argument("--seconds", type=float, default=20)
    arguments.add_argument("--kinds", nargs="*", default=list(KINDS))
    arguments.add_argument("--serve", help=argparse.SUPPRESS)
    arguments.add_argument("--scrape", type=int, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.serve:
        asyncio.run(_serve(chosen.serve))
    elif chosen.scrape:
        asyncio.run(_scrape(chosen.scrape, chosen.seconds))
    else:
        print("| 300 pods answer | loop busy at a stretch, ms | memory, MiB | oldest other sample, s |")
        print("| --- | ---: | ---: | ---: |")
        for kind in chosen.kinds:
            found = _measured(kind, chosen.source, chosen.seconds)
            print(f"| {kind} | {found['lag']} | {found['memory']} | {found['age']} |", flush=True)


def _measured(kind: str, source: Path, seconds: float) -> dict[str, Any]:
    me = [sys.executable, "-m", "benchmarks.scraping"]
    paths = os.pathsep.join(map(str, (source.resolve(), Path(__file__).parent.parent)))
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen([*me, "--serve", kind], stdout=subprocess.PIPE, text=True) as servers:
        assert servers.stdout is not None  # noqa: S101 - it was asked for
        port = servers.stdout.readline().strip()
        scraped = subprocess.run(
            [*me, "--scrape", port, "--seconds", str(seconds)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        servers.kill()
    found: dict[str, Any] = json.loads(scraped.stdout)
    return found


async def _serve(kind: str) -> None:
    async with pods(KINDS[kind], HOSTILE_ADDRESS) as port, pods(KINDS["as vLLM"], GOOD_ADDRESS, port=port):
        print(port, flush=True)
        await asyncio.Event().wait()


async def _scrape(port: int, seconds: float) -> None:
    # Of the source that is measured.
    from prometheus_client import CollectorRegistry  # noqa: PLC0415

    from pdinference.api.names import Role  # noqa: PLC0415
    from pdinference.cluster.cache import Cache  # noqa: PLC0415
    from pdinference.cluster.kinds import Owner  # noqa: PLC0415
    from pdinference.loadmetrics.metrics import ScrapeMetrics  # noqa: PLC0415
    from pdinference.loadmetrics.policies import Policies  # noqa: PLC0415
    from pdinference.loadmetrics.scraping.scrape import Scraper  # noqa: PLC0415

    cache = Cache()
    _fill(cache, "hostile", HOSTILE, HOSTILE_ADDRESS)
    _fill(cache, "good", GOOD, GOOD_ADDRESS)
    metrics_of = ScrapeMetrics(CollectorRegistry())
    scraper = Scraper(cache, Policies(cache), metrics_of, on_change=lambda _: None, port=port)
    watch = _Watch(seconds, lambda: [load.window for load in scraper.pods(Owner("good", "llama"), Role.DECODE)])
    watch.start()
    running = asyncio.create_task(scraper.forever())
    while True:
        began = time.thread_time()
        await asyncio.sleep(0)
        watch.turned(time.thread_time() - began)
        await asyncio.sleep(0.002)
        if running.done() and running.exception() is not None:
            watch.died = True


def _fill(cache: Any, namespace: str, count: int, address: str) -> None:
    from pdinference.api import names  # noqa: PLC0415
    from pdinference.api.names import Role  # noqa: PLC0415
    from pdinference.cluster.kinds import POD, RESOURCE  # noqa: PLC0415

    def metadata(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "1", **more}

    spec = {"model": {"source": {"path": "/m"}}, "decode": {"autoscaling": {"maxReplicas": 400}}}
    cache.observe(RESOURCE, {"metadata": metadata("llama", generation=1), "spec": spec}, deleted=False)
    status = {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
    for number in range(count):
        labels = names.role_selector("llama", Role.DECODE, "rev")
        pod = owned(metadata(f"d-{number}", labels=labels))
        cache.observe(POD, {"metadata": pod, "status": status}, deleted=False)


class _Watch(threading.Thread):
    """Looks from outside the event loop, and ends the process."""

    def __init__(self, seconds: float, windows: Any) -> None:
        super().__init__(daemon=True)
        self.died = False
        self._began = self._turned = time.monotonic()
        self._busy = 0.0
        self._until = time.monotonic() + seconds
        self._windows = windows

    def turned(self, busy: float) -> None:
        """The event loop had a turn."""
        self._turned = time.monotonic()
        if self._turned - self._began > _FIRST_S:
            self._busy = max(self._busy, busy)

    def run(self) -> None:
        before, age = _rss_mib("VmRSS"), 0.0
        while (now := time.monotonic()) < self._until:
            if now - self._began > _SETTLED_S:
                latest = [window.latest(now) for window in self._windows()]
                age = max(age, *(99.0 if dated is None else now - dated.at for dated in latest))
            time.sleep(0.005)
        shown = "none, the scraper died" if self.died else f"{age:.1f}" if age < 99 else "none"
        memory = f"{_rss_mib('VmHWM') - before:.0f}"
        blocked = time.monotonic() - self._turned
        lag = f"{1000 * max(self._busy, blocked if blocked > _STUCK_S else 0.0):,.0f}"
        print(json.dumps({"lag": lag, "memory": memory, "age": shown}), flush=True)
        os._exit(0)


def _rss_mib(member: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{member}:")) / 1024


if __name__ == "__main__":
    main()
