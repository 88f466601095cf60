"""OpenAI's own client meets the router: answers, streams, and every kind of error as its exception."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from pdinference.router.keys import KeyLimits, Keys
from tests.router import engines
from tests.router.engines import Engine, Fleet, fleet, status
from tests.router.model import CHAT, LENGTH, Model, asking

KEY = "sk-0123456789abcdef"


@asynccontextmanager
async def client(world: Fleet, key: str = KEY) -> AsyncIterator[AsyncOpenAI]:
    # Its own retries would hide what the router answers.
    async with AsyncOpenAI(base_url=f"{world.url}/v1", api_key=key, max_retries=0, timeout=30) as found:
        yield found


def serves(engine: Engine, *, dies_after: int | None = None) -> None:
    engine.fault = Model(dies_after)


async def chat(found: AsyncOpenAI, **more: Any) -> str:
    text = ""
    messages: Any = [{"role": "user", "content": "abc"}]
    stream = await found.chat.completions.create(
        model="m", messages=messages, max_tokens=LENGTH, temperature=0, stream=True, **more
    )
    async for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    return text


def expected() -> str:
    data = Model.stream(CHAT, asking(CHAT))
    return "".join(part.split(b'"')[0].decode() for part in data.split(b'"content": "')[1:])


async def test_a_stream_is_read_to_its_end() -> None:
    async with fleet("p", "d") as world, client(world) as found:
        serves(world["d"])
        assert await chat(found) == expected()


async def test_a_stream_that_moves_to_another_pod_is_read_to_its_end() -> None:
    rules = {"migration": True, "policy": "round_robin"}
    async with fleet("p", "d1", "d2", rules=rules) as world, client(world) as found:
        serves(world["d1"], dies_after=1200)
        serves(world["d2"])
        assert await chat(found) == expected()
        assert await world.metric("pdinference_router_migrations_total") == 1


async def test_a_stream_that_breaks_off_raises_an_error() -> None:
    async with fleet("p", "d") as world, client(world) as found:
        serves(world["d"], dies_after=1200)
        with pytest.raises(openai.APIError, match="The D pod failed"):
            await chat(found)


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (status(400), openai.BadRequestError),
        (status(404), openai.NotFoundError),
        (status(500), openai.InternalServerError),
        (engines.abort, openai.InternalServerError),
    ],
)
async def test_each_error_is_an_exception_of_its_kind(fault: Any, raised: type[openai.APIStatusError]) -> None:
    async with fleet("p", "d", rules={"max_wait": 5}) as world, client(world) as found:
        world["d"].fault = fault
        with pytest.raises(raised) as caught:
            await found.completions.create(model="m", prompt="a")
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["message"]


async def test_keys_and_limits_are_known_to_the_client(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(KEY)
    keys = Keys(tmp_path, {"a": KeyLimits(requests_per_minute=1)})
    async with fleet("p", "d", keys=keys) as world:
        serves(world["d"])
        async with client(world, "sk-unknown-0123456789") as found:
            with pytest.raises(openai.AuthenticationError):
                await found.models.list()
        async with client(world) as found:
            assert await chat(found) == expected()
            with pytest.raises(openai.RateLimitError) as caught:
                await chat(found)
            assert int(caught.value.response.headers["Retry-After"]) > 0


async def test_a_client_that_closes_a_stream_ends_the_request_at_d() -> None:
    async def endless(request: Any) -> Any:
        response = await engines.events(request)
        while True:
            await response.write(b'data: {"choices": [{"text": "a", "index": 0}]}\n\n')
            await world["d"].go_on.wait()

    async with fleet("p", "d") as world, client(world) as found:
        world["d"].fault = endless
        stream = await found.completions.create(model="m", prompt="a", stream=True)
        await anext(aiter(stream))
        await stream.close()
        await world["d"].left.wait()
