"""Small servers that play vLLM's P and D pods, and faults of theirs."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import Any

import aiohttp
from aiohttp import web

from pdinference.api.names import Role
from pdinference.engine.connectors.registry import HANDOVERS
from pdinference.router.choice import policies
from pdinference.router.dispatch import Rules
from pdinference.router.pieces import chain_of
from pdinference.router.pod import Observed, by_rank
from pdinference.router.pods import Pods
from pdinference.router.run import Serving, Settings, serving

ENGINE_LOGGER = "engine"
P, D = Role.PARAMETER, Role.DECODE
PARAMS = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_engine_id": "p",
    "remote_block_ids": [[1, 2]],
    "remote_request_id": "cmpl-1",
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
    "tp_size": 1,
    "pp_size": 2,
    "remote_prefill_cached_tokens": 3,
    "remote_registration_generation": 1,
}
ENGINE_ID = "b7e4"
EVENTS = [b'data: {"choices": [{"text": "%d"}]}\n\n' % number for number in range(3)] + [b"data: [DONE]\n\n"]


class Engine:
    """A pod. It answers by its role; `fault` answers instead while it is set."""

    def __init__(self, name: str, role: Role) -> None:
        self.name = name
        self.role = role
        self.port = 0
        self.fault: Callable[[web.Request], Any] | None = None
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.raw: list[bytes] = []
        self.lines: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()
        self.healthy = True
        self.dead = False
        self.redirects = ""
        self.probes = 0
        self.engine_ids = {"0": ENGINE_ID}
        self.steps: Iterator[int] = count()
        self.counters: dict[str, float] = {}
        self.metrics = ""
        self.parses = True
        self.metrics_fault: Callable[[web.Request], Any] | None = None
        self.readings = 0
        self._runner: web.AppRunner | None = None

    @property
    def observed(self) -> Observed:
        address = f"127.0.0.1:{self.port}"
        return Observed(
            f"uid-{self.name}", self.name, self.role, address, ready=True, group=self.name.rpartition("/")[0]
        )

    async def start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app,
            shutdown_timeout=0.1,
            handler_cancellation=True,
            access_log=None,
            logger=logging.getLogger(ENGINE_LOGGER),
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Die: connections end without a word, new ones are refused."""
        if self._runner is not None:
            self.go_on.set()
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, _request: web.Request) -> web.Response:
        self.probes += 1
        if self.redirects:
            raise web.HTTPFound(self.redirects)
        if not self.healthy:
            await asyncio.Event().wait()
        return web.Response(status=503 if self.dead else 200)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        self.readings += 1
        if self.metrics_fault is not None:
            found: web.StreamResponse = await self.metrics_fault(request)
            return found
        lines = [f'vllm:iteration_tokens_total_count{{engine="0"}} {next(self.steps)}']
        lines += [f"{name} {value}" for name, value in self.counters.items()]
        return web.Response(text=self.metrics or "".join(f"{line}\n" for line in lines))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.raw.append(raw)
        self.lines.append(f"{request.method} {request.raw_path}")
        self.headers.append(request.headers.copy())
        if self.parses and request.content_type == "application/json" and raw:
            try:
                self.bodies.append(json.loads(raw))
            except (ValueError, RecursionError):
                return web.json_response({"error": {"message": "not JSON", "code": 400}}, status=400)
        self.arrived.set()
        try:
            if self.fault is not None:
                found: web.StreamResponse = await self.fault(request)
                return found
            await self.go_on.wait()
            if request.path == "/query":
                ranks = {rank: {"engine_id": engine, "worker_addr": {}} for rank, engine in self.engine_ids.items()}
                return web.json_response(ranks)
            if self.role is P and self.bodies and not self.bodies[-1].get("stream"):
                return web.json_response({"choices": [{"text": "0"}], "kv_transfer_params": PARAMS})
            return await self.answer(request)
        except (asyncio.CancelledError, ConnectionResetError):
            self.left.set()
            raise

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not self.bodies or not self.bodies[-1].get("stream"):
            return web.json_response({"by": self.name, "path": request.path})
        response = await events(request)
        for event in EVENTS:
            await response.write(event)
        return response


async def events(request: web.Request) -> web.StreamResponse:
    """A stream of events that has begun."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


def status(code: int, body: dict[str, Any] | None = None) -> Callable[[web.Request], Any]:
    """Answers with an error."""

    async def fault(_request: web.Request) -> web.Response:
        return web.json_response(body or {"error": {"message": "by the test", "code": code}}, status=code)

    return fault


async def abort(request: web.Request) -> web.Response:
    """Dies when the request has come."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def give_up(request: web.Request) -> web.StreamResponse:
    """End the request as vLLM does with one that comes after SIGTERM."""
    body = '{"choices":[{"text":"","finish_reason":"abort"}]}'
    if not json.loads(await request.read()).get("stream"):
        return web.Response(text=body, content_type="application/json")
    response = await events(request)
    await response.write(f"data: {body}\n\ndata: [DONE]\n\n".encode())
    return response


async def error_event(request: web.Request) -> web.StreamResponse:
    """End a stream with an error of the server before its first token, as vLLM does where it raises one."""
    response = await events(request)
    await response.write(b'data: {"error":{"message":"by the test","code":500}}\n\ndata: [DONE]\n\n')
    return response


async def abort_after_headers(request: web.Request) -> web.StreamResponse:
    """Dies between headers and first token."""
    response = await events(request)
    assert request.transport is not None
    request.transport.close()
    return response


async def abort_in_stream(request: web.Request) -> web.StreamResponse:
    """Dies after a token, within the event of the next one."""
    response = await events(request)
    await response.write(EVENTS[0] + EVENTS[1][:9])
    assert request.transport is not None
    request.transport.close()
    return response


async def hang(_request: web.Request) -> web.Response:
    """Accepts and never answers."""
    await asyncio.Event().wait()
    raise AssertionError


async def hang_in_answer(request: web.Request) -> web.StreamResponse:
    """Sends the first byte of an answer, and no other."""
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"{")
    await asyncio.Event().wait()
    raise AssertionError


@dataclass
class Fleet:
    """Pods behind a router, and a client."""

    pods: Pods
    client: aiohttp.ClientSession
    engines: dict[str, Engine] = field(default_factory=dict)
    ranks: Mapping[Role, int] = field(default_factory=dict)
    url: str = ""
    state: str = ""
    serving: Serving | None = None
    settings: Settings | None = None
    _router: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def stop(self) -> None:
        """Stop the router as SIGTERM does."""
        await self._router.aclose()

    async def start(self, settings: Settings) -> None:
        """Start the router."""
        self.settings = settings
        self.serving = await self._router.enter_async_context(serving(settings, self.pods, _nothing))
        self.url, self.state = (
            f"http://{settings.host}:{port}" for port in (self.serving.port, self.serving.state_port)
        )

    async def restart(self, **settings: Any) -> None:
        """Start the router again, with other settings."""
        assert self.settings is not None
        await self.stop()
        await self.start(replace(self.settings, **settings))

    def __getitem__(self, name: str) -> Engine:
        return self.engines[name]

    def observe(self, *without: str) -> None:
        """What the API server has: all pods but these."""
        found = [engine.observed for name, engine in self.engines.items() if name not in without]
        ranks = (rank for one in found for rank in by_rank(one, self.ranks.get(one.role, 1)))
        self.pods.observe({rank.uid: rank for rank in ranks})

    async def post(
        self,
        body: Mapping[str, object] = MappingProxyType({}),
        *,
        path: str = "/v1/completions",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any, Any]:
        """Status, headers and body of an answer; JSON, or the bytes of a stream."""
        sent = {"prompt": "one two", "max_tokens": 9, **body}
        async with self.client.post(self.url + path, json=sent, headers=headers) as answer:
            if answer.content_type == "application/json":
                return answer.status, answer.headers, await answer.json()
            return answer.status, answer.headers, await answer.read()

    async def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        async with self.client.get(f"{self.state}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def _nothing() -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def fleet(*names: str, **settings: Any) -> AsyncIterator[Fleet]:
    """A router with pods: names that begin with p are P, the others D. `a/p` and `a/d` are engines of pod a.

    `ranks` says how many data-parallel ranks pods of a role have.
    """
    rules = {"handover": "nixl", "policy": "least_loaded"} | settings.pop("rules", {})
    handover = HANDOVERS.get(rules.pop("handover"))
    chosen = Rules(handover, policies(rules.pop("policy"), whole=handover is None, chain_of=chain_of), **rules)
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as client:
        pods = Pods(settings.pop("clock", time.monotonic), roles=chosen.roles)
        found = Fleet(pods, client, ranks=settings.pop("ranks", {}))
        for name in names:
            engine = Engine(name, P if name.rpartition("/")[2].startswith("p") else D)
            await engine.start()
            stack.push_async_callback(engine.stop)
            found.engines[name] = engine
        found.observe()

        # Router and pods share a process: what keeps it waiting is no failure of a pod.
        await found.start(Settings(chosen, **{"drain_seconds": 1, "connect": 60.0, **settings}))
        stack.push_async_callback(found.stop)
        yield found
