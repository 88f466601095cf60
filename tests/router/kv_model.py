"""A model behind vLLM's API, whose answer depends on the KV cache of the whole prompt. Its transfer can have faults."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from tests.router.engines import PARAMS, Engine, Fleet, P

Kv = tuple[int, ...]
"""KV cache of a prompt: a number for each token."""
FROM_P, COMPUTED = (
    f'vllm:prompt_tokens_by_source_total{{source="{source}"}}' for source in ("external_kv_transfer", "local_compute")
)


class Transfer:
    """A transfer without a fault.

    Attributes:
        before: KV cache of the prompt that P computed before.
    """

    before: Kv = ()

    def __call__(self, sent: Kv) -> tuple[Kv, int]:
        """What D has for the prompt after the transfer, and how many tokens of it came from P, as D counts."""
        return sent, len(sent)


class Zeros(Transfer):
    def __call__(self, sent: Kv) -> tuple[Kv, int]:
        return (0,) * len(sent), len(sent)


class OthersBlocks(Transfer):
    def __call__(self, sent: Kv) -> tuple[Kv, int]:
        return self.before or sent, len(sent)


class HalfZeros(Transfer):
    def __call__(self, sent: Kv) -> tuple[Kv, int]:
        half = len(sent) // 2
        return (*sent[:half], *([0] * (len(sent) - half))), len(sent)


class Nothing(Transfer):
    """D computes all."""

    def __call__(self, sent: Kv) -> tuple[Kv, int]:
        return sent, 0


class Half(Transfer):
    """D computes the rest."""

    def __call__(self, sent: Kv) -> tuple[Kv, int]:
        return sent, len(sent) // 2


class KvModel:
    """Serves in the pods of a fleet.

    Attributes:
        transfer: Moves KV cache from P to D.
        faulty: Transfers to single D pods, by name.
        broken: Pairs of a P and a D pod between which nothing gets through.
        ways: The P and the D pod of each transfer.
        at_d: Number of transfers under way.
        most: The largest number of them.
        needed: Number of them under way that lets them end; 0 for any.
        noise: Share by which D's probabilities differ from P's, as rounding does.
        counts: Whether D counts where KV cache is from.
        sees: What of the prompt the answer depends on.
        longest: Maximum length.
        hands_over: Whether P says where its KV cache is.
        for_decode: The prompts that P computed for D.
        alone: The prompts that P answered itself.
        refuses: Whether P refuses a request, by path and body.
        d_refuses: Whether D refuses a request, by its body.
        others: Tokens that D counts for requests of others along with each prompt: those from P, and those it computed.
    """

    def __init__(self, world: Fleet, transfer: Transfer | None = None) -> None:
        self.transfer = transfer or Transfer()
        self.faulty: dict[str, Transfer] = {}
        self.broken: set[tuple[str, str]] = set()
        self.ways: list[tuple[str, str]] = []
        self.at_d = self.most = self.needed = 0
        self._enough = asyncio.Condition()
        self.noise = 0.0
        self.counts = True
        self.sees: Callable[[Kv], object] = lambda kv: kv
        self.longest = 4096
        self.hands_over = True
        self.for_decode: list[Kv] = []
        self.alone: list[Kv] = []
        self.refuses: Callable[[str, dict[str, Any]], bool] = lambda _path, _body: False
        self.d_refuses: Callable[[dict[str, Any]], bool] = lambda _body: False
        self.others: list[tuple[int, int]] = []
        for engine in world.engines.values():
            self.serve(engine)

    def serve(self, engine: Engine) -> None:
        """Serve in a pod."""
        if engine.role is P:
            engine.fault = partial(self._in_parameter, engine)
        else:
            engine.fault = partial(self._in_decode, engine)
            self._count(engine, 0, 0)

    async def _in_parameter(self, engine: Engine, request: web.Request) -> web.Response:
        body = json.loads(await request.read() or b"{}")
        if self.refuses(request.path, body):
            return web.json_response({"error": {"message": "by the test", "code": 400}}, status=400)
        if request.path == "/tokenize":
            return web.json_response({"tokens": list(body["prompt"].encode())})
        kv = _kv(body["prompt"])
        if body.get("kv_transfer_params") is None:
            self.alone.append(kv)
            return self._answer(kv, 0.0, body)
        self.for_decode.append(kv)
        own = {"remote_engine_id": engine.name, "remote_num_tokens": len(self.for_decode) - 1}
        found = {**PARAMS, **own} if self.hands_over else None
        return web.json_response({"choices": [{}], "kv_transfer_params": found})

    async def _in_decode(self, engine: Engine, request: web.Request) -> web.Response:
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "m", "max_model_len": self.longest}]})
        body = json.loads(await request.read())
        if self.d_refuses(body):
            return web.json_response({"error": {"message": "by the test", "code": 400}}, status=400)
        if (found := body.get("kv_transfer_params")) is None:
            return self._answer(_kv(body["prompt"]), self.noise, body)
        self.ways.append((found["remote_engine_id"], engine.name))
        await self._wait_for_others()
        number = found["remote_num_tokens"]
        is_broken = (found["remote_engine_id"], engine.name) in self.broken
        transfer = Nothing() if is_broken else self.faulty.get(engine.name, self.transfer)
        transfer.before = self.for_decode[number - 1] if number else ()
        sent = self.for_decode[number]
        kv, moved = transfer(sent)
        self._count(engine, moved, len(sent) - moved)
        if self.others:
            self._count(engine, *self.others.pop())
        return self._answer(kv, self.noise, body)

    async def _wait_for_others(self) -> None:
        self.at_d += 1
        self.most = max(self.most, self.at_d)
        try:
            async with self._enough:
                if self.at_d >= self.needed:
                    self.needed = 0
                    self._enough.notify_all()
                await self._enough.wait_for(lambda: not self.needed)
        finally:
            self.at_d -= 1

    async def go_on(self) -> None:
        """Let transfers end."""
        async with self._enough:
            self.needed = 0
            self._enough.notify_all()

    def _count(self, engine: Engine, moved: int, computed: int) -> None:
        if self.counts:
            counters = engine.counters
            counters[FROM_P] = counters.get(FROM_P, 0) + moved
            counters[COMPUTED] = counters.get(COMPUTED, 0) + computed

    def _answer(self, kv: Kv, noise: float, body: dict[str, Any]) -> web.Response:
        chance = random.Random(repr(self.sees(kv)))  # noqa: S311 - nothing secret
        top = {f"token_id:{chance.randrange(1000)}": -chance.uniform(0, 3) - noise * token for token in range(20)}
        logprobs = {"top_logprobs": [top]} if body.get("logprobs") else None
        return web.json_response({"choices": [{"text": "a", "logprobs": logprobs}]})


def _kv(prompt: Sequence[int] | str) -> Kv:
    return tuple(prompt.encode() if isinstance(prompt, str) else prompt)
