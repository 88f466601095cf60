"""Plays an engine of vLLM that takes time: steps of at most so many tokens, for prompts and answers together.

A prompt has as many tokens as words. The times are those of an 8B model on an H200 (benchmarks/results/adaptive.md),
`SLOWER` times as long, so that other work on this machine does not change what is compared.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from benchmarks.fake_vllm import HANDED_OVER, answering

SLOWER: Final = 5
_STEP_S: Final = 0.006 * SLOWER
_ANSWER_S: Final = 0.00003 * SLOWER
"""What one more answer adds to a step."""
_PROMPT_TOKEN_S: Final = 0.000027 * SLOWER
_TRANSFER_TOKEN_S: Final = 0.000002 * SLOWER
_STEP_TOKENS: Final = 512
_PATH: Final = "/v1/completions"


@dataclass
class Request:
    """A request in the engine.

    Attributes:
        prompt: Tokens of its prompt that are not computed yet.
        answer: Tokens of its answer that are not generated yet.
        steps: An item for each token, and for the end of a prompt without an answer.
    """

    prompt: int
    answer: int
    steps: asyncio.Queue[None] = field(default_factory=asyncio.Queue)


class Engine:
    """An engine.

    Attributes:
        prompts: Requests whose prompts it has to compute, in turn.
        answers: Requests whose answers it generates.
        computed: Prompt tokens that it has computed so far.
        generated: Answer tokens so far.
    """

    def __init__(self) -> None:
        self.prompts: deque[Request] = deque()
        self.answers: list[Request] = []
        self.computed = 0
        self.generated = 0
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Make steps, until cancelled."""
        while True:
            self._work.clear()
            if not (self.prompts or self.answers):
                await self._work.wait()
            part = self._part()
            seconds = _STEP_S + _ANSWER_S * len(self.answers) + _PROMPT_TOKEN_S * sum(tokens for _, tokens in part)
            await asyncio.sleep(seconds)
            self._end(part)

    def _part(self) -> list[tuple[Request, int]]:
        """The prompts of a step, each with its tokens in it."""
        left, part = _STEP_TOKENS - len(self.answers), []
        for request in self.prompts:
            if left <= 0:
                break
            part.append((request, min(left, request.prompt)))
            left -= part[-1][1]
        return part

    def _end(self, part: list[tuple[Request, int]]) -> None:
        for request in self.answers:
            request.answer -= 1
            request.steps.put_nowait(None)
        self.generated += len(self.answers)
        for request, tokens in part:
            request.prompt -= tokens
            self.computed += tokens
            if not request.prompt:
                self.prompts.remove(request)
                self.answers.append(request)
                request.answer -= 1
                request.steps.put_nowait(None)
        self.answers = [request for request in self.answers if request.answer > 0]

    async def answer(self, http: web.Request) -> web.StreamResponse:
        """Answer as P (prefill alone), as D (with KV cache of P), or alone."""
        body: dict[str, Any] = await http.json()
        tokens, count = len(body["prompt"].split()), int(body.get("max_tokens") or 1)
        transfer = body.get("kv_transfer_params") or {}
        request = Request(tokens, count)
        if transfer.get("do_remote_prefill"):
            await asyncio.sleep(_TRANSFER_TOKEN_S * tokens)
            request.prompt = 1  # its last token, as with vLLM
        self.prompts.append(request)
        self._work.set()
        if transfer.get("do_remote_decode"):
            await request.steps.get()
            return web.json_response({"choices": [{"text": "a"}], "kv_transfer_params": HANDED_OVER})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        for _ in range(count):
            await request.steps.get()
            await _event(response, {"choices": [{"index": 0, "text": " word", "finish_reason": None}]})
        usage = {"prompt_tokens": tokens, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": 0}}
        await _event(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response


async def _event(response: web.StreamResponse, document: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps({'object': 'text_completion', **document})}\n\n".encode())


@asynccontextmanager
async def serving(engine: Engine) -> AsyncIterator[int]:
    """The port of an engine at work."""
    async with answering(_PATH, engine.answer) as port:
        steps = asyncio.create_task(engine.run())
        try:
            yield port
        finally:
            steps.cancel()
            with suppress(asyncio.CancelledError):
                await steps
