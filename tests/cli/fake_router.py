"""A router in a pod, as `chat` and `bench` see it: streamed answers over HTTP, and a line of its log for each."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.cli.served_cluster import ServedCluster, pod
from tests.http_server import served

Json = dict[str, Any]
STAGES = {"queue": 0.0001, "prefill": 0.031, "first_token": 0.042, "tokens": 1.2}


class FakeRouter:
    """It answers each request with these words; `bodies` and `keys` have what came."""

    def __init__(self, cluster: ServedCluster) -> None:
        self.words = ["KV", " cache", " \x1b[31mkeeps", " keys."]
        self.events: list[bytes] | None = None
        """Data of the events of an answer, in place of those of the words."""
        self.models = b'{"data": [{"id": "llama"}, {"id": "llama-sql"}]}'
        self.stall = 0.0
        """Seconds without a token amid each answer."""
        self.why: dict[str, object] = {}
        """What its log says of the way of a request."""
        self.ends = True
        self.logs = True
        self.refusal: tuple[int, str] | None = None
        self.bodies: list[Json] = []
        self.keys: list[str] = []
        self.at_once = self.most_at_once = 0
        self.together: asyncio.Barrier | None = None
        """Each answer waits for others here, so that so many are under way at once."""
        self._cluster = cluster

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeRouter"]:
        """Serve it in the pod `router-0` of the cluster."""
        routes = [
            web.get("/v1/models", self._models),
            web.post("/v1/chat/completions", self._answer),
            web.post("/v1/completions", self._answer),
        ]
        async with served(routes) as port:
            self._cluster.pods.append(pod("router", "router-0"))
            self._cluster.pod_port = port
            self._cluster.logs["router-0", "router"] = [b"not JSON\n"]
            yield self

    async def _models(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization", ""))
        return web.Response(body=self.models, content_type="application/json")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.together is not None:
                await self.together.wait()
            return await self._streamed(request, body)
        finally:
            self.at_once -= 1

    async def _streamed(self, request: web.Request, body: Json) -> web.StreamResponse:
        if self.refusal is not None:
            status, message = self.refusal
            return web.json_response({"error": {"message": message}}, status=status)
        assert body["stream"]
        assert body["stream_options"] == {"include_usage": True}
        response = web.StreamResponse(headers={"X-PDInference-Prefill": "parameter"})
        await response.prepare(request)
        for event in self.events or ():
            await response.write(b"data: " + event + b"\n\n")
        for number, word in enumerate(self.words if self.events is None else ()):
            choice = {"delta": {"content": word}} if "messages" in body else {"text": word}
            await response.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            await asyncio.sleep(self.stall if number == len(self.words) // 2 else 0)
        usage = {"prompt_tokens": 12, "completion_tokens": len(self.words)}
        if self.ends:
            await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
            await response.write(b"data: [DONE]\n\n")
        line = {
            "request_id": request.headers["X-Request-Id"],
            "prefill": "llama-parameter-r1-0",
            "decode": "llama-decode-r1-x",
            "fallback": "",
            "retries": 0,
            **{f"{name}_seconds": seconds for name, seconds in STAGES.items()},
            **({"why": self.why} if self.why else {}),
        }
        if self.logs:
            self._cluster.logs["router-0", "router"].append(json.dumps(line).encode() + b"\n")
        return response
