"""The real vLLM behind the router: no member of a body ends its engine. Starting it takes half a minute and more."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pdinference.api.names import Role
from pdinference.router.choice import policies
from pdinference.router.dispatch import Rules
from pdinference.router.pod import Observed
from pdinference.router.pods import Pods
from pdinference.router.run import Settings, serving
from tests.router.hostile_bodies import GOOD, bodies
from tests.router.real_engine import START_S, make_model, serves, vllm
from tests.waiting import until

pytestmark = [pytest.mark.vllm, pytest.mark.vllm_cpu, pytest.mark.timeout(1800)]

_SEED = int(os.environ.get("HOSTILE_SEED", "1"))
_CASES = int(os.environ.get("HOSTILE_CASES", "60"))
_MODEL = "tiny"
_ANSWER_S = 120
_POISON: tuple[Any, ...] = ("", 0, [], 0.0, {"a": 1}, [""], "a")
_JSON = {"Content-Type": "application/json"}


@asynccontextmanager
async def router(port: int) -> AsyncIterator[str]:
    """A router in front of one D. Gives its URL."""
    pods = Pods(roles=(Role.DECODE,))
    pods.observe({"d": Observed("d", "d", Role.DECODE, f"127.0.0.1:{port}", ready=True)})
    rules = Rules(None, policies("least_loaded", whole=True))
    async with serving(Settings(rules, drain_seconds=1), pods, asyncio.Event().wait) as found:  # type: ignore[arg-type]
        yield f"http://127.0.0.1:{found.port}"


async def posted(client: aiohttp.ClientSession, url: str, body: bytes) -> tuple[int, bytes]:
    async with client.post(url, data=body, headers=_JSON) as answer:
        return answer.status, await answer.read()


async def test_no_member_of_a_body_ends_the_engine(tmp_path: Path) -> None:
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    model = tmp_path / "model"
    await make_model(model)
    async with (
        vllm(model, Role.DECODE, f"--served-model-name={_MODEL}") as port,
        router(port) as url,
        aiohttp.ClientSession(timeout=timeout) as client,
    ):

        async def healthy() -> bool:
            return await serves(client, port)

        async def lives() -> None:
            found = await posted(client, f"{url}/v1/completions", _good("/v1/completions"))
            assert found[0] == HTTPStatus.OK, found

        await until(healthy, "vLLM serves", within=START_S)
        for path in GOOD:
            for member in ("vllm_xargs", r"vllm\u005fxargs"):
                for value in _POISON:
                    poison = {"kv_transfer_params": value}
                    body = _good(path)[:-1] + f',"n":2,"{member}":{json.dumps(poison)}}}'.encode()
                    assert (await posted(client, url + path, body))[0] == HTTPStatus.BAD_REQUEST
        await lives()
        for path, body in bodies(_SEED, _CASES, model=_MODEL):
            await posted(client, url + path, body)
            assert await healthy(), (path, body)
        await lives()

        # What the router keeps from the engine would have ended it.
        body = _good("/v1/completions")[:-1] + b',"vllm_xargs":{"kv_transfer_params":""}}'
        await posted(client, f"http://127.0.0.1:{port}/v1/completions", body)

        async def ended() -> bool:
            return not await healthy()

        await until(ended, "the engine has ended", within=60)


def _good(path: str) -> bytes:
    body: dict[str, Any] = {"model": _MODEL, **GOOD[path]}
    return json.dumps(body).encode()
