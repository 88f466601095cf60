"""Plays P and D pods on ports of this machine: `python -m benchmarks.fake_vllm PORT...`.

Answers to /v1/completions and /v1/chat/completions have `max_tokens` chunks of one token. Between two of them `seed`
milliseconds pass; 0, or no seed, is as fast as they can be sent.
"""

import asyncio
import json
import sys

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


def _chunk(kind: str, **choice: object) -> bytes:
    """As long as one of vLLM."""
    choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": None, "stop_reason": None}]
    chunk = {"id": "cmpl-1", "object": kind, "created": 1, "model": MODEL, "choices": choices, "usage": None}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


CHUNKS = {
    "/v1/completions": _chunk("text_completion", text=" word", prompt_token_ids=None),
    "/v1/chat/completions": _chunk("chat.completion.chunk", delta={"content": " word"}, token_ids=None),
}


async def play(places: list[int]) -> None:
    """Serve on these ports until killed."""
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/health", _healthy)
    app.router.add_get("/v1/models", _models)
    for path in CHUNKS:
        app.router.add_post(path, _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    for port in places:
        await web.TCPSite(runner, HOST, port, backlog=1024).start()
    await asyncio.Event().wait()


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response()


async def _models(_request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 2**20}]})


async def _answer(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    count = body.get("max_completion_tokens") or body.get("max_tokens") or 16
    if not body.get("stream"):
        return web.json_response({"choices": [{"text": "a"}], "kv_transfer_params": HANDED_OVER})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    pause = (body.get("seed") or 0) / 1000
    chunk = CHUNKS[request.path]
    for _ in range(count):
        await response.write(chunk)
        if pause:
            await asyncio.sleep(pause)
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": 1 + count}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
    await response.write(END)
    return response


if __name__ == "__main__":
    uvloop.run(play([int(port) for port in sys.argv[1:]]))
