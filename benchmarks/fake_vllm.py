"""Plays vLLMs on ports of this machine: `python -m benchmarks.fake_vllm PORT...`, unsplit ones, P and D pods.

Answers to /v1/completions and /v1/chat/completions have `max_tokens` tokens of one word. Between two chunks `seed`
milliseconds pass; 0, or no seed, is as fast as they can be sent.

With `--prefill-rate` a port computes the prompts of text completions one at a time, at so many tokens (words) a second,
without those blocks that are in its prefix cache; with `--step-ms`, a step takes that and 2 % more for each answer in
progress. Metrics have vLLM's names. `POST /fake/fault?kind=KIND` makes a port fail its requests from then on.
"""

import argparse
import asyncio
import json
import logging
import math
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop
from aiohttp import web

from benchmarks.processes import HOST

MODEL = "m"
END = b"data: [DONE]\n\n"
HANDED_OVER = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_engine_id": "p",
    "remote_block_ids": [[1]],
    "remote_request_id": "r",
    "remote_host": HOST,
    "remote_port": 5600,
    "tp_size": 1,
}
"""What P tells D."""
BLOCK: Final = 512
"""Tokens of a block of the prefix cache."""
FAULTS: Final = ("dies before the answer", "dies amid a stream", "answers 500", "answers garbage", "slow headers")
_BEFORE, _AMID, _ERROR, _GARBAGE, _SLOW = FAULTS
_CHUNKS_BEFORE_DEATH: Final = 5
_SLOW_S: Final = 0.5
_SLOWER: Final = 0.02


def _chunk(kind: str, **choice: object) -> bytes:
    """As long as one of vLLM."""
    choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": None, "stop_reason": None}]
    chunk = {"id": "cmpl-1", "object": kind, "created": 1, "model": MODEL, "choices": choices, "usage": None}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


CHUNKS = {
    "/v1/completions": _chunk("text_completion", text=" word", prompt_token_ids=None),
    "/v1/chat/completions": _chunk("chat.completion.chunk", delta={"content": " word"}, token_ids=None),
}


@dataclass(frozen=True)
class Speed:
    """How fast a server is.

    Attributes:
        prefill_rate: Prompt tokens a second; infinite without a model of prompts.
        blocks: Blocks of the prefix cache.
        step_s: Seconds of a step with one answer; 0 leaves the time to the request.
        tokens: Of a chunk.
    """

    prefill_rate: float = math.inf
    blocks: int = 0
    step_s: float = 0.0
    tokens: int = 1


@dataclass
class Server:
    """One of the servers."""

    speed: Speed
    fault: str = ""
    requests: int = 0
    waiting: int = 0
    running: int = 0
    held: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    busy_s: float = 0.0
    _cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def app(self) -> web.Application:
        """Its HTTP server."""
        app = web.Application(client_max_size=2**26)
        for path in ("/health", "/ping"):
            app.router.add_get(path, _healthy)
        app.router.add_get("/v1/models", _models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/fake/counts", self._counts)
        app.router.add_post("/fake/fault", self._fail_from_now_on)
        for path in CHUNKS:
            app.router.add_post(path, self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        body = await request.json()
        if self.fault:
            early = await self._fail(request)
            if early is not None:
                return early
        prompt = body.get("prompt")
        words = prompt.split() if isinstance(prompt, str) else []
        async with self._counted("held", len(words)):
            async with self._counted("waiting"):
                if not math.isinf(self.speed.prefill_rate) and not _has_kv_cache(body):
                    await self._prefill(words)
            async with self._counted("running"):
                return await self._decode(request, body)

    @asynccontextmanager
    async def _counted(self, state: str, number: int = 1) -> AsyncIterator[None]:
        setattr(self, state, getattr(self, state) + number)
        try:
            yield
        finally:
            setattr(self, state, getattr(self, state) - number)

    async def _prefill(self, words: Sequence[str]) -> None:
        """Compute a prompt, after those that came before it."""
        async with self._turn:
            cached = min(self._cached(list(_blocks(words))), len(words) - 1)
            takes = (len(words) - cached) / self.speed.prefill_rate
            self.prompt_tokens += len(words)
            self.cached_tokens += cached
            self.busy_s += takes
            await asyncio.sleep(takes)

    def _cached(self, blocks: Sequence[int]) -> int:
        """Tokens that are in the cache; all of the prompt is there afterwards, and what was used longest ago is not."""
        found = next((at for at, block in enumerate(blocks) if block not in self._cache), len(blocks))
        for block in reversed(blocks):  # the end of a prompt goes first
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) > self.speed.blocks:
            self._cache.popitem(last=False)
        return found * BLOCK

    async def _decode(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        count = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        if not body.get("stream"):
            usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": 1 + count}
            answer = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL, "usage": usage}
            choices = [{"index": 0, "text": "a", "finish_reason": "length"}]
            return web.json_response(answer | {"choices": choices, "kv_transfer_params": HANDED_OVER})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chunk = CHUNKS[request.path]
        for number in range(0, count, self.speed.tokens):
            if number and (pause := self._pause_s(body)):
                await asyncio.sleep(pause)
            await response.write(chunk)
            if self.fault == _AMID and number >= _CHUNKS_BEFORE_DEATH:
                os._exit(1)
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": 1 + count}
            await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        await response.write(END)
        return response

    def _pause_s(self, body: dict[str, Any]) -> float:
        if self.speed.step_s:
            return self.speed.tokens * self.speed.step_s * (1 + _SLOWER * (self.running - 1))
        return float(body.get("seed") or 0) / 1000

    async def _fail_from_now_on(self, request: web.Request) -> web.Response:
        self.fault = request.query["kind"]
        return web.Response()

    async def _fail(self, request: web.Request) -> web.StreamResponse | None:
        if self.fault == _BEFORE:
            os._exit(1)
        if self.fault == _ERROR:
            return web.json_response({"error": {"message": "broken", "type": "server", "code": 500}}, status=500)
        if request.transport is not None and self.fault == _GARBAGE:
            request.transport.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            request.transport.close()
        while request.transport is not None and self.fault == _SLOW and not request.transport.is_closing():
            request.transport.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            await asyncio.sleep(_SLOW_S)
            while not request.transport.is_closing():
                request.transport.write(b"a")
                await asyncio.sleep(_SLOW_S)
        return None if self.fault == _AMID else web.Response()

    async def _counts(self, _request: web.Request) -> web.Response:
        names = ("requests", "prompt_tokens", "cached_tokens", "busy_s")
        return web.json_response({name: getattr(self, name) for name in names})

    async def _metrics(self, _request: web.Request) -> web.Response:
        blocks, name = self.speed.blocks * BLOCK // 16, f'model_name="{MODEL}"'
        gauges = {
            f"vllm:num_requests_waiting{{{name}}}": max(0, self.waiting - 1),
            f"vllm:num_requests_running{{{name}}}": self.running + min(1, self.waiting),
            f"vllm:kv_cache_usage_perc{{{name}}}": min(1.0, self.held / (16 * blocks)) if blocks else 0.0,
            f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}"}}': 1,
        }
        lines = (f"# TYPE {labelled.split('{')[0]} gauge\n{labelled} {value}\n" for labelled, value in gauges.items())
        return web.Response(text="".join(lines))


@asynccontextmanager
async def answering(path: str, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[int]:
    """The port of a healthy server in this process, with one endpoint."""
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/health", _healthy)
    app.router.add_post(path, answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def play(places: Sequence[int], speed: Speed) -> None:
    """Serve on these ports until killed."""
    for port in places:
        runner = web.AppRunner(Server(speed).app(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, HOST, port, backlog=1024).start()
    await asyncio.Event().wait()


def _blocks(words: Sequence[str]) -> Iterator[int]:
    """The hash of each whole block with all before it."""
    found = 0
    for at in range(0, len(words) - BLOCK + 1, BLOCK):
        found = hash((found, tuple(words[at : at + BLOCK])))
        yield found


def _has_kv_cache(body: dict[str, Any]) -> bool:
    """Whether P has computed the prompt."""
    return bool((body.get("kv_transfer_params") or {}).get("do_remote_prefill"))


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response()


async def _models(_request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 2**20}]})


def main() -> None:
    """Play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--prefill-rate", type=float, default=math.inf)
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=1, help="of a chunk")
    arguments = parser.parse_args()
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # a router asks whether a server speaks HTTP/2
    speed = Speed(arguments.prefill_rate, arguments.blocks, arguments.step_ms / 1000, arguments.tokens)
    uvloop.run(play(arguments.ports, speed))


if __name__ == "__main__":
    main()
