"""The routing of the real vllm-router with rendered options; small servers play vLLM."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.router import router_command
from tests.integration.operator_process import free_port
from tests.integration.world import until

pytestmark = pytest.mark.vllm

_ROUTER = Path(sys.executable).parent / "vllm-router"
_PASSED_ON = {"kv_transfer_params": {"remote_engine_id": "p"}}


class Engine:
    """Plays a vLLM pod: its requests wait until they are let go."""

    def __init__(self) -> None:
        self.url = ""
        self.held: list[asyncio.Event] = []
        self.asked_to_render = 0
        self._open = False

    def let_go(self, *, later_too: bool = False) -> None:
        self._open = later_too
        for event in self.held:
            event.set()
        self.held = []

    async def _hold(self) -> None:
        event = asyncio.Event()
        if not self._open:
            self.held.append(event)
            await event.wait()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not (await request.json())["stream"]:
            await self._hold()
            return web.json_response({"choices": [{"text": "a"}], **_PASSED_ON})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices": []}\n\n')
        await self._hold()
        await response.write(b"data: [DONE]\n\n")
        return response

    async def render(self, request: web.Request) -> web.Response:
        """The tokens of a prompt, as vLLM tells them: here a token a word."""
        self.asked_to_render += 1
        words = (await request.json())["prompt"].split()
        return web.json_response([{"request_id": "r", "token_ids": [hash(word) % 30_000 for word in words]}])

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Engine"]:
        app = web.Application()
        app.router.add_get("/health", _healthy)
        app.router.add_post("/v1/completions/render", self.render)
        app.router.add_post("/v1/completions", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self.let_go(later_too=True)
            await runner.cleanup()


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response()


class Pair:
    """Two P, three D, and the router in front of them."""

    def __init__(self, client: aiohttp.ClientSession, port: int, metrics_port: int) -> None:
        self.p, self.d = [Engine() for _ in range(2)], [Engine() for _ in range(3)]
        self._client, self._port, self._metrics_port = client, port, metrics_port
        self._asking: list[asyncio.Task[bytes]] = []

    async def ask(self, prompt: str, *, stream: bool = False) -> None:
        """Send a request, and return when a P pod has it."""
        before = self._in(self.p)
        self._asking.append(asyncio.create_task(self._ask({"model": "m", "prompt": prompt, "stream": stream})))
        await until(lambda: _now(self._in(self.p) > before), "a P pod has the request")

    async def reach_decode(self, prompt: str, *, stream: bool) -> None:
        """Send a request, and return when a D pod has it."""
        before = self._in(self.d)
        await self.ask(prompt, stream=stream)
        for engine in self.p:
            engine.let_go()
        await until(lambda: _now(self._in(self.d) > before), "a D pod has the request")

    async def until_idle(self, engine: Engine, metric: str) -> None:
        """Until the router knows that a pod has none of its requests any more."""
        await until(lambda: self._is_zero(f'{metric}{{worker="{engine.url}"'), "the router knows that it is idle")

    async def all_answered(self) -> None:
        for engine in (*self.p, *self.d):
            engine.let_go(later_too=True)
        await asyncio.gather(*self._asking)

    async def ready(self) -> bool:
        try:
            async with self._client.get(f"http://127.0.0.1:{self._port}/readiness") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    def _in(self, engines: list[Engine]) -> int:
        return sum(len(engine.held) for engine in engines)

    async def _is_zero(self, series: str) -> bool:
        async with self._client.get(f"http://127.0.0.1:{self._metrics_port}/metrics") as response:
            lines = (await response.text()).splitlines()
        return any(line.startswith(series) and float(line.rsplit(" ", 1)[1]) == 0 for line in lines)

    async def _ask(self, body: dict[str, Any]) -> bytes:
        async with self._client.post(f"http://127.0.0.1:{self._port}/v1/completions", json=body) as response:
            response.raise_for_status()
            return await response.read()


async def _now(holds: bool) -> bool:
    return holds


def _arguments(resource: PDInference, pair: Pair, port: int, metrics_port: int) -> list[str]:
    """As rendered, with fixed addresses in place of the pods that Kubernetes would tell."""
    rendered = list(router_command(resource, "abc").arguments)
    policies = [argument for argument in rendered if argument.split("=")[0].endswith("policy")]
    assert "--vllm-pd-disaggregation" in rendered
    return [
        *("--vllm-pd-disaggregation", "--kv-connector=nixl", *policies, "--worker-startup-check-interval=1"),
        *(f"--port={port}", f"--prometheus-port={metrics_port}"),
        *(part for engine in pair.p for part in ("--prefill", engine.url)),
        *(part for engine in pair.d for part in ("--decode", engine.url)),
    ]


@pytest.fixture
async def pair(resource: Callable[..., PDInference]) -> AsyncIterator[Pair]:
    """Behind the router that a resource gets which names no policy."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        port, metrics_port = free_port(), free_port()
        pair = Pair(client, port, metrics_port)
        for engine in (*pair.p, *pair.d):
            await stack.enter_async_context(engine.serving())
        router = await asyncio.create_subprocess_exec(
            _ROUTER, *_arguments(resource(), pair, port, metrics_port), stdout=asyncio.subprocess.DEVNULL
        )
        try:
            await until(pair.ready, "the router is ready")
            yield pair
        finally:
            router.kill()
            await router.wait()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_decode_goes_to_the_pod_with_the_fewest_requests(pair: Pair, stream: bool) -> None:
    for number in range(9):
        await pair.reach_decode(f"prompt {number}", stream=stream)
    assert [len(engine.held) for engine in pair.d] == [3, 3, 3]
    free = pair.d[1]
    free.let_go()
    await pair.until_idle(free, "vllm_router_pd_active_decode_requests")
    for number in range(3):
        await pair.reach_decode(f"another {number}", stream=stream)
    assert [len(engine.held) for engine in pair.d] == [3, 3, 3]
    await pair.all_answered()


async def test_prefill_takes_turns_and_nobody_has_to_tokenize_prompts(pair: Pair) -> None:
    for turn in range(1, 4):
        for _ in pair.p:
            await pair.ask("long " * 1000 if turn == 1 else "short")
        assert [len(engine.held) for engine in pair.p] == [turn, turn]
    await pair.all_answered()
    assert [engine.asked_to_render for engine in (*pair.p, *pair.d)] == [0, 0, 0, 0, 0]
