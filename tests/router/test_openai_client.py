"""The clients of OpenAI and Anthropic meet the router: answers, streams, and errors as their exceptions."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from pdinference.router.keys import KeyLimits, Keys
from tests.router import engines
from tests.router.engines import Engine, Fleet, fleet, status
from tests.router.model import CHAT, LENGTH, Model, asking
from tests.router.test_deaths import POISON, mortal

KEY = "sk-0123456789abcdef"


@asynccontextmanager
async def client(world: Fleet, key: str = KEY) -> AsyncIterator[AsyncOpenAI]:
    # Its own retries would hide what the router answers.
    async with AsyncOpenAI(base_url=f"{world.url}/v1", api_key=key, max_retries=0, timeout=30) as found:
        yield found


@asynccontextmanager
async def anthropic_client(world: Fleet, retries: int = 0) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=world.url, api_key=KEY, max_retries=retries, timeout=30) as found:
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


MESSAGE: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}
START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"a","type":"message","role":"assistant",'
    b'"content":[],"model":"m","usage":{"input_tokens":1,"output_tokens":0}}}\n\n'
)


def breaks_off(*parts: bytes) -> Any:
    """Sends some events, and dies."""

    async def fault(request: Any) -> Any:
        response = await engines.events(request)
        for part in parts:
            await response.write(part)
        assert request.transport is not None
        request.transport.close()
        return response

    return fault


async def test_a_stream_of_messages_that_breaks_off_raises_an_error_of_anthropics_client() -> None:
    async with fleet("p", "d") as world, anthropic_client(world) as found:
        world["d"].fault = breaks_off(START)
        stream = await found.messages.create(**MESSAGE, stream=True)
        assert (await anext(aiter(stream))).type == "message_start"
        with pytest.raises(anthropic.APIStatusError, match="The D pod failed") as caught:
            await anext(aiter(stream))
        assert caught.value.body == {
            "type": "error",
            "error": {"type": "api_error", "message": "The D pod failed (disconnected)."},
        }


@pytest.mark.parametrize(
    ("fault", "raised", "kind"),
    [
        (engines.abort, anthropic.InternalServerError, "api_error"),
        (status(500), anthropic.InternalServerError, None),
    ],
)
async def test_each_error_of_messages_is_an_exception_of_anthropics_client(
    fault: Any, raised: type[anthropic.APIStatusError], kind: str | None
) -> None:
    async with fleet("p", "d", rules={"max_wait": 5}) as world, anthropic_client(world) as found:
        world["d"].fault = fault
        with pytest.raises(raised) as caught:
            await found.messages.create(**MESSAGE)
        body: Any = caught.value.body
        assert kind is None or (body["type"], body["error"]["type"]) == ("error", kind)


async def test_the_routers_own_errors_of_messages_have_anthropics_form(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("sk-another-0123456789")
    keys = Keys(tmp_path, {"a": KeyLimits()})
    async with fleet("p", "d", keys=keys) as world, anthropic_client(world) as found:
        with pytest.raises(anthropic.AuthenticationError) as caught:
            await found.messages.create(**MESSAGE)
        body: Any = caught.value.body
        assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")


async def test_a_stream_of_responses_that_breaks_off_raises_an_error() -> None:
    created = (
        b'event: response.created\ndata: {"type":"response.created","sequence_number":7,"response":{"id":"a",'
        b'"created_at":1,"model":"m","object":"response","output":[],"parallel_tool_calls":true,"tool_choice":"auto",'
        b'"tools":[]}}\n\n'
    )
    async with fleet("p", "d") as world, client(world) as found:
        world["d"].fault = breaks_off(created)
        stream = await found.responses.create(model="m", input="a", stream=True)
        assert (await anext(aiter(stream))).sequence_number == 7
        with pytest.raises(openai.APIError, match="The D pod failed"):
            await anext(aiter(stream))
        world["d"].fault = breaks_off(created)
        sent = {"input": "a", "stream": True}
        async with world.client.post(f"{world.url}/v1/responses", json=sent) as answer:
            await answer.content.readuntil(b"\n\n")
            name, data = (await answer.content.readuntil(b"\n\n")).strip().split(b"\n")
        event = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: error"
        assert (event["type"], event["code"], event["sequence_number"]) == ("error", "502", 8)


@pytest.mark.parametrize("of", ["openai", "anthropic"])
async def test_clients_do_not_repeat_a_request_that_kills_pods(of: str) -> None:
    async with fleet("p", "d1", "d2", "d3") as world:
        pods = mortal(world, "d1", "d2", "d3")
        if of == "openai":
            async with AsyncOpenAI(base_url=f"{world.url}/v1", api_key=KEY, max_retries=5, timeout=30) as one:
                with pytest.raises(openai.InternalServerError):
                    await one.chat.completions.create(model="m", messages=[{"role": "user", "content": POISON}])
        else:
            async with anthropic_client(world, 5) as other:
                with pytest.raises(anthropic.InternalServerError):
                    await other.messages.create(**MESSAGE, system=POISON)
        assert sum(pod.died.is_set() for pod in pods) == 1
