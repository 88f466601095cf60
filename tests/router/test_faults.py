"""Pods that Kubernetes calls ready and that give no answers: the router names them until they answer again."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat

import aiohttp
import pytest
from aiohttp import web

from pdinference.api.names import METRIC_POD_FAULT, PodFault
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router.faults import MOST, PodFaults
from pdinference.router.monitor import Monitor
from pdinference.router.pod import Observed, Pod
from pdinference.router.pods import Pods
from tests.router import engines
from tests.router.engines import D, Fleet, P, fleet
from tests.waiting import LONG_S, until

SERVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(b'{"by": "d1", "choices": []}')
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass
class Standing:
    """A D pod that is a process of its own."""

    process: Process
    port: int

    @property
    def observed(self) -> Observed:
        return Observed("uid-d1", "d1", D, f"127.0.0.1:{self.port}", ready=True)


@asynccontextmanager
async def process() -> AsyncIterator[Standing]:
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdout=PIPE)
    try:
        assert started.stdout is not None
        yield Standing(started, int(await asyncio.wait_for(started.stdout.readline(), LONG_S)))
    finally:
        started.kill()
        await started.wait()


def pod_of(world: Fleet, name: str) -> Pod:
    return next(pod for pod in world.pods if pod.observed.name == name)


async def has_fault(world: Fleet, name: str, fault: PodFault) -> bool:
    return await world.metric(f'{METRIC_POD_FAULT}{{fault="{fault}",pod="{name}"}}') == 1


async def test_a_stopped_process_gets_no_requests_until_it_goes_on() -> None:
    async with process() as d1, fleet("p", "d2", silence=0.5) as world:
        world.engines["d1"] = d1  # type: ignore[assignment]
        world.observe("d2")
        assert (await world.post())[2]["by"] == "d1"
        assert await world.metric(f"{METRIC_POD_FAULT}{{") == 0
        d1.process.send_signal(signal.SIGSTOP)
        asked = asyncio.create_task(world.post())

        async def sent() -> bool:
            return bool(pod_of(world, "d1").under_way)

        await until(sent, "D has the request")
        world.observe()
        code, _, body = await asyncio.wait_for(asked, LONG_S)
        assert (code, body["by"]) == (200, "d2")
        assert await has_fault(world, "d1", PodFault.HUNG)
        assert pod_of(world, "d1") not in world.pods.available(D)
        await until(lambda: _paused_no_longer(world), "its pause has ended")
        assert {(await world.post())[2]["by"] for _ in range(4)} == {"d2"}
        d1.process.send_signal(signal.SIGCONT)

        async def answers() -> bool:
            return not await has_fault(world, "d1", PodFault.HUNG) and pod_of(world, "d1") in world.pods.available(D)

        await until(answers, "D gets requests again")
        world.observe("d2")
        assert (await world.post())[2]["by"] == "d1"


async def _paused_no_longer(world: Fleet) -> bool:
    """Whether the time without requests that follows each failure has passed."""
    pod, clock = pod_of(world, "d1"), world.pods._clock
    return pod.paused_until < clock()


async def test_an_engine_that_stalls_is_named_until_it_takes_a_step() -> None:
    async with fleet("p", "d1", "d2", silence=0.3, stall=1.2) as world:
        world["d1"].fault, world["d1"].steps = engines.hang, repeat(7)
        world.observe("d2")
        asked = asyncio.create_task(world.post())
        await world["d1"].arrived.wait()
        world.observe()
        assert (await asyncio.wait_for(asked, LONG_S))[2]["by"] == "d2"
        assert await has_fault(world, "d1", PodFault.STALLED)
        await goes_on(world)


async def goes_on(world: Fleet) -> None:
    """Let the engine of d1 take steps again, and wait until the router knows."""
    world["d1"].steps = count(8)

    async def known() -> bool:
        return pod_of(world, "d1").fault is None

    await until(known, "its engine goes on")


async def test_an_engine_that_stalls_again_and_again_is_stuck_until_it_takes_a_step() -> None:
    async with fleet("p", "d1", silence=0.1, stall=0.4) as world:
        world["d1"].fault, world["d1"].steps = engines.hang, repeat(7)
        asked = asyncio.create_task(world.post())
        await until(partial(has_fault, world, "d1", PodFault.STALLED), "the only D to stall")
        await until(partial(has_fault, world, "d1", PodFault.STUCK), "it to be stuck")
        await asyncio.wait_for(asked, LONG_S)
        await goes_on(world)


async def test_a_long_prompt_that_is_computed_in_parts_is_no_stall() -> None:
    """vLLM counts no step without output, and parts of a prompt have none."""
    parts = count(1)

    async def metrics(_request: web.Request) -> web.Response:
        steps, use = "vllm:iteration_tokens_total_count 7\n", f"vllm:kv_cache_usage_perc {next(parts) / 1e6}\n"
        return web.Response(text=steps + use)

    async with fleet("p", "d1", "d2", silence=0.1, stall=0.5) as world:
        world["d1"].metrics_fault = metrics
        world["d1"].go_on.clear()
        world.observe("d2")
        long = asyncio.create_task(world.post())
        await world["d1"].arrived.wait()
        world.observe()
        world["d2"].fault, world["d2"].steps = engines.hang, repeat(7)
        other = asyncio.create_task(world.post())  # to d2, then to d1
        await until(partial(has_fault, world, "d2", PodFault.STALLED), "the other D to stall")
        assert pod_of(world, "d1").fault is None
        world["d1"].go_on.set()
        for asked in (long, other):
            code, _, body = await asyncio.wait_for(asked, LONG_S)
            assert (code, body["by"]) == (200, "d1")


async def test_probes_that_failed_before_a_pod_was_heard_do_not_count() -> None:
    """A round takes as long as the probe of another pod that hangs, so a pod may be heard between two rounds."""
    more = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        response = await engines.events(request)
        await response.write(engines.EVENTS[0])
        await more.wait()
        await response.write(engines.EVENTS[1])
        await asyncio.Event().wait()
        raise AssertionError

    async with fleet("p", "d", silence=LONG_S) as world, aiohttp.ClientSession() as session:
        world["d"].fault, world["d"].dead = slow, True
        pod = pod_of(world, "d")
        monitor = Monitor(world.pods, session, Share(), silence=0.05, stall=LONG_S)
        asked = asyncio.create_task(world.post({"stream": True}))

        def is_silent(since: float) -> bool:
            return bool(pod.awaited) and pod.heard_at > since and pod.heard_at < asyncio.get_running_loop().time() - 0.1

        def has_begun() -> bool:
            return any(one.reads_from is None for one in pod.under_way)

        await until(lambda: has_begun() and is_silent(0.0), "D is silent")
        for _ in range(2):
            await monitor.round()
        heard_at = pod.heard_at
        more.set()
        await until(lambda: is_silent(heard_at), "D is silent again")
        for _ in range(2):
            await monitor.round()
        assert pod.fault is None
        await monitor.round()
        assert pod.fault is PodFault.HUNG
        with pytest.raises(aiohttp.ClientPayloadError):
            await asked


async def test_a_pod_that_refuses_is_named_until_it_listens() -> None:
    async with fleet("p1", "p2", "d", silence=0.3, rules={"policy": "round_robin"}) as world:
        await world["p1"].stop()
        for _ in range(2):
            assert (await world.post())[0] == 200
        assert await has_fault(world, "p1", PodFault.REFUSES)
        await world["p1"].start()

        async def listens() -> bool:
            return not await has_fault(world, "p1", PodFault.REFUSES)

        await until(listens, "P listens again")


def samples(pods: Pods) -> list[dict[str, str]]:
    (family,) = PodFaults(pods).collect()
    return [sample.labels for sample in family.samples]


def test_pods_that_are_not_ready_are_left_to_the_kubelet_and_few_are_named() -> None:
    pods = Pods()
    seen = {str(one): Observed(str(one), f"p-{one:03}", P, "", ready=True) for one in range(MOST + 9)}
    pods.observe(seen)
    for pod in pods:
        pods.failed(pod)
    assert samples(pods) == [], "requests that failed say little of a pod"
    for pod in pods:
        pods.failed(pod, PodFault.HUNG)
    assert samples(pods) == [{"pod": f"p-{one:03}", "fault": "hung"} for one in range(MOST)]
    pods.observe({"0": seen["0"], "1": Observed("1", "p-001", P, "", ready=False)})
    assert samples(pods) == [{"pod": "p-000", "fault": "hung"}]
