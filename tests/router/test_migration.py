"""A stream that loses its D pod goes on at another one, and the client sees the same answer."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict

from pdinference.router.calls import read_call
from pdinference.router.migration import StreamProgress, can_migrate
from pdinference.router.server import RequestLimits
from tests.router.engines import PARAMS, Engine, Fleet, events, fleet, status
from tests.router.model import CHAT, COMPLETIONS, LENGTH, Model, asking, text
from tests.waiting import LONG_S


def answers(*engines: Engine, dies_after: int | None = None) -> None:
    for engine in engines:
        engine.fault = Model(dies_after)


async def asked(world: Fleet, path: str, body: Mapping[str, Any]) -> bytes:
    async with world.client.post(world.url + path, json=body) as answer:
        assert answer.status == 200
        return await answer.read()


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_the_answer_is_that_of_an_undisturbed_stream_wherever_it_broke(path: str) -> None:
    body = asking(path, stream_options={"include_usage": True})
    whole = Model.stream(path, body)
    # What D sends has token ids, so it is longer.
    sent = Model.stream(path, {**body, "return_token_ids": True})
    async with fleet("p", "d1", "d2", rules={"migration": True, "policy": "round_robin"}) as world:
        last = len(b"data: [DONE]\n\n")
        for cut in (*range(1, len(sent) + 1, 37), len(sent) - last, len(sent)):
            answers(world["d1"], dies_after=cut)
            answers(world["d2"])
            got = await asked(world, path, body)
            assert text(got) == text(whole), cut
            assert got.count(b'"usage":{"prompt_tokens":3,"completion_tokens":12,"total_tokens":15}') == 1, cut
            for pod in world.pods:
                world.pods.worked(pod)
        assert await world.metric("pdinference_router_migrations_total") > 10


async def test_an_event_that_is_no_utf_8_ends_with_an_error_that_the_client_can_read() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = await events(request)
        await response.write(b'data: {"choices": [{"text": "\xff"}]}\n\n')
        return response

    async with fleet("p", "d", rules={"migration": True}) as world:
        world["d"].fault = broken
        async with world.client.post(world.url + COMPLETIONS, json=asking(COMPLETIONS)) as answer:
            assert b'"error"' in await answer.content.readuntil(b"\n\n")
        assert await world.metric('pdinference_router_requests_total{client="",outcome="cut"') == 1


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_a_stream_whose_prompt_has_many_tokens_goes_on(path: str) -> None:
    """Their ids come in one event, which is longer than a pod may hold back of other streams."""
    long = "abc" * 200_000
    body = asking(path, prompt=long, messages=[{"role": "user", "content": long}])
    del body["messages" if path == COMPLETIONS else "prompt"]
    whole = text(Model.stream(path, body))
    dies_after = len(Model.stream(path, {**body, "return_token_ids": True})) - 500
    assert dies_after > 2 * 2**20
    async with fleet("p", "d1", "d2", rules={"migration": True, "policy": "round_robin"}) as world:
        answers(world["d1"], dies_after=dies_after)
        answers(world["d2"])
        assert text(await asked(world, path, body)) == whole
        assert await world.metric("pdinference_router_migrations_total") == 1


async def test_a_stream_survives_several_pods() -> None:
    async with fleet("p", "d1", "d2", "d3", rules={"migration": True}) as world:
        body = asking(COMPLETIONS)
        answers(world["d1"], world["d2"], world["d3"], dies_after=700)
        got = await asyncio.wait_for(asked(world, COMPLETIONS, body), LONG_S)
        assert text(got) == text(Model.stream(COMPLETIONS, body))


async def test_the_next_pod_gets_a_prefill_of_its_own_and_the_rest_of_the_limits() -> None:
    kept = {"top_k": 5, "user": "u", "stop_token_ids": [7], "include_stop_str_in_output": True, "watermarking": False}
    async with fleet("p", "d1", "d2", rules={"migration": True, "policy": "round_robin"}) as world:
        answers(world["d1"], dies_after=400)
        answers(world["d2"])
        await asked(world, CHAT, asking(CHAT, min_tokens=6, **kept))
        (body,) = world["d2"].bodies
        done = LENGTH - body["max_tokens"]
        assert 0 < done < LENGTH
        assert len(body["prompt"]) == 3 + done
        assert body["min_tokens"] == max(0, 6 - done)
        assert body | kept == body
        assert "kv_transfer_params" in body
        assert "messages" not in body
        assert [sent.get("prompt") for sent in world["p"].bodies] == [None, body["prompt"]]


async def test_what_cannot_be_continued_ends_with_an_error() -> None:
    async with fleet("p", "d1", "d2", rules={"migration": True, "policy": "round_robin"}) as world:
        answers(world["d1"], world["d2"], dies_after=600)
        with pytest.raises(aiohttp.ClientPayloadError):
            await asked(world, COMPLETIONS, asking(COMPLETIONS, stop=["x"]))
        assert len(world["d1"].bodies) + len(world["d2"].bodies) == 1
        assert "return_token_ids" not in (world["d1"].bodies + world["d2"].bodies)[0]


async def test_a_pod_that_refuses_the_rest_ends_the_stream_with_an_error() -> None:
    async with fleet("p", "d1", "d2", rules={"migration": True, "policy": "round_robin"}) as world:
        answers(world["d1"], dies_after=600)
        world["d2"].fault = status(400)
        with pytest.raises(aiohttp.ClientPayloadError):
            await asked(world, COMPLETIONS, asking(COMPLETIONS))


async def test_a_stream_whose_rest_finds_no_room_ends_with_an_error_event() -> None:
    """A response that has begun cannot become another one: its status line would be text within the stream."""

    async def much_for_the_rest(request: web.Request) -> web.Response:
        is_rest = isinstance((await request.json())["prompt"], list)
        return web.json_response({"kv_transfer_params": PARAMS, "more": "a" * 10_000 * is_rest})

    rules, limits = {"migration": True, "policy": "round_robin"}, RequestLimits(answers=5000, room_seconds=0.1)
    async with fleet("p", "d1", "d2", rules=rules, limits=limits) as world:
        world["p"].fault = much_for_the_rest
        answers(world["d1"], world["d2"], dies_after=600)
        async with (
            asyncio.timeout(LONG_S),
            world.client.post(world.url + COMPLETIONS, json=asking(COMPLETIONS)) as answer,
        ):
            *_, last = [await answer.content.readuntil(b"\n\n") for _ in range(4)]
            assert b"The D pod failed (no_room)." in last
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        assert await world.metric('pdinference_router_requests_total{client="",outcome="cut"') == 1


async def begun(path: str, *chunks: tuple[list[int], dict[str, Any]], **more: Any) -> StreamProgress:
    """A stream whose prompt has the tokens 1 and 2, after chunks with the ids of tokens and what came with them."""
    body = json.dumps(asking(path, **more)).encode()
    progress = StreamProgress(await read_call(path, body, "application/json", CIMultiDict()))
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}} if path == CHAT else {"index": 0, "text": ""}
    progress.take(event({"id": "first", "choices": [first], "prompt_token_ids": [1, 2]}))
    for ids, came in chunks:
        progress.take(event({"id": "first", "choices": [{"index": 0, "token_ids": ids, **came}]}))
    return progress


def event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def said(path: str, words: str) -> dict[str, Any]:
    return {"delta": {"content": words}} if path == CHAT else {"text": words}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_a_part_of_a_character_is_generated_again(path: str) -> None:
    """A prompt that ends with one has vLLM's detokenizer repeat all of it before the next text."""
    progress = await begun(path, ([3], said(path, "a")), ([4], said(path, "")), ([5], said(path, "")))
    assert progress.can_continue
    call = progress.next_call()
    assert call is not None
    body = json.loads(call.body)
    assert (body["prompt"], body["max_tokens"]) == ([1, 2, 3], LENGTH - 1)


async def test_a_client_that_has_the_ids_does_not_get_them_again() -> None:
    half = [([3], said(CHAT, "a")), ([4], said(CHAT, ""))]
    assert not (await begun(CHAT, *half, return_token_ids=True)).can_continue
    assert (await begun(CHAT, *half, ([5], said(CHAT, "b")), return_token_ids=True)).can_continue
    ended = await begun(CHAT, *half, ([5], {**said(CHAT, ""), "finish_reason": "stop"}), return_token_ids=True)
    assert ended.can_continue
    assert ended.next_call() is None


@pytest.mark.parametrize("chunks", [[], [([3], {"delta": {}})]], ids=["role", "begins to think"])
async def test_a_chat_without_text_so_far_is_asked_again_as_a_chat(chunks: list[tuple[list[int], Any]]) -> None:
    """As a completion, what the model thinks would be a part of the text."""
    progress = await begun(CHAT, *chunks)
    call = progress.next_call()
    assert call is not None
    assert (call.path, json.loads(call.body)["messages"]) == (CHAT, asking(CHAT)["messages"])
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}}
    thinks = {"index": 0, "delta": {"reasoning": "hm"}, "token_ids": [3, 4]}
    for choice, delta in ((role, {"content": ""}), (thinks, {"reasoning": "hm"})):
        got = json.loads(progress.take(event({"id": "second", "choices": [choice]})).removeprefix(b"data: "))
        assert (got["id"], got["choices"]) == ("first", [{"index": 0, "delta": delta}])
    assert not progress.can_continue


async def test_a_text_whose_ids_are_hidden_is_not_continued() -> None:
    assert not (await begun(CHAT, ([], said(CHAT, "a")))).can_continue


async def test_token_ids_are_only_for_clients_that_want_them() -> None:
    async with fleet("p", "d", rules={"migration": True}) as world:
        answers(world["d"])
        assert b"token_ids" not in await asked(world, CHAT, asking(CHAT))
        wanted = await asked(world, CHAT, asking(CHAT, return_token_ids=True))
        assert wanted.count(b'"token_ids"') == LENGTH
        assert wanted.count(b'"prompt_token_ids"') == 1


@pytest.mark.parametrize(
    ("more", "possible"),
    [
        ({}, True),
        ({"seed": 1}, True),
        ({"seed": 1, "temperature": 1}, False),
        ({"temperature": 1}, True),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": 0.0}, True),
        ({"presence_penalty": 0.5}, False),
        ({"frequency_penalty": 0.5}, False),
        ({"stop": "x"}, False),
        ({"logprobs": 1}, False),
        ({"logprobs": False}, True),
        ({"tools": [{}]}, False),
        ({"response_format": {"type": "text"}}, True),
        ({"response_format": {"type": "json_object"}}, False),
        ({"structured_outputs": {"regex": "a"}}, False),
        ({"include_reasoning": True}, True),
        ({"include_reasoning": False}, False),
        ({"prompt_embeds": "a"}, False),
        ({"n": 2}, False),
        ({"stream": False}, False),
    ],
)
async def test_only_what_stays_exact_is_continued(more: dict[str, Any], possible: bool) -> None:
    for path in (COMPLETIONS, CHAT):
        body = json.dumps({**asking(path), **more}).encode()
        assert can_migrate(await read_call(path, body, "application/json", CIMultiDict())) is possible


@pytest.mark.parametrize("content", [[{"type": "text", "text": "a"}, {"type": "image_url"}], 3, None])
async def test_images_are_not_continued(content: Any) -> None:
    body = json.dumps(asking(CHAT, messages=[{"role": "user", "content": content}])).encode()
    assert not can_migrate(await read_call(CHAT, body, "application/json", CIMultiDict()))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_an_error_of_the_request_goes_to_the_client_and_to_no_other_pod(path: str) -> None:
    refusal = b'data: {"error":{"message":"out of vocabulary","code":400}}\n\ndata: [DONE]\n\n'

    async def refuse(request: web.Request) -> web.StreamResponse:
        response = await events(request)
        await response.write(refusal)
        return response

    async with fleet("p", "d1", "d2", rules={"migration": True}) as world:
        for name in ("d1", "d2"):
            world[name].fault = refuse
        async with world.client.post(world.url + path, json=asking(path)) as answer:
            assert await answer.read() == refusal
        assert len(world["d1"].bodies) + len(world["d2"].bodies) == 1
