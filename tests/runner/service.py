"""A service that responds like vLLM's, on a real socket, and fails on demand."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Reply = web.StreamResponse | None
"""What a fault answers; None for an ordinary answer."""


class FakeService:
    """Answers chat completions with the prompt, and counts.

    Attributes:
        asked: How often each prompt arrived.
        answered: How often each prompt was answered.
        most_at_once: Largest number of requests under way at a time.
        fault: Asked before each answer, with the prompt and how often it has arrived.
        ready, is_ready: What /health says.
        hold: While it is not set, nothing is answered.
        pause_at: Number of answers after which `hold` is cleared.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.bodies: list[Json] = []
        self.most_at_once = 0
        self.fault: Callable[[str, int], Reply] = lambda prompt, times: None
        self.ready = True
        self.is_ready: Callable[[], bool] = lambda: self.ready
        self.hold = asyncio.Event()
        self.hold.set()
        self.pause_at = 0
        self.url = ""
        self._under_way = 0

    @asynccontextmanager
    async def serve(self, chat: Handler | None = None) -> AsyncIterator["FakeService"]:
        app = web.Application(client_max_size=64 << 20)
        app.add_routes([web.post("/v1/chat/completions", chat or self._chat), web.get("/health", self._health)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.is_ready() else 503)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = body["messages"][0]["content"]
        self.bodies.append(body)
        self.asked[prompt] += 1
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            await self.hold.wait()
            wrong = self.fault(prompt, self.asked[prompt])
            if wrong is not None:
                return wrong
        except ConnectionAbortedError:
            assert request.transport is not None
            request.transport.abort()  # the connection is cut, as by a pod that dies
            raise
        finally:
            self._under_way -= 1
        self.answered[prompt] += 1
        if self.answered.total() == self.pause_at:
            self.hold.clear()
        message = {"role": "assistant", "content": f"echo {prompt}"}
        return web.json_response(
            {"id": f"chatcmpl-{prompt}", "model": body.get("model"), "choices": [{"message": message}]}
        )


def line(number: int, **body: Any) -> Json:
    """One line of input."""
    messages = [{"role": "user", "content": f"prompt {number}"}]
    return {
        "custom_id": f"request-{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": messages, **body},
    }


def write_lines(path: Path, lines: list[Json]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in lines), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[Json]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
