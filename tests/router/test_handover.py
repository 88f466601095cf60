"""A request goes to P and then to D, with what P returned."""

import asyncio
import json

import pytest
from aiohttp import web

from pdinference.api.names import METRIC_HANDED_OVER
from pdinference.engine.connectors.registry import HANDOVERS
from tests.router.engines import ENGINE_ID, EVENTS, PARAMS, events, fleet, hang


async def test_nixl_sends_what_p_returned_to_d() -> None:
    async with fleet("p", "d") as world:
        status, headers, body = await world.post({"stop": ["x"]}, headers={"X-Request-Id": "r1"})
    assert (status, body) == (200, {"by": "d", "path": "/v1/completions"})
    (prefill,), (decode,) = world["p"].bodies, world["d"].bodies
    asked = prefill.pop("kv_transfer_params")
    assert asked["do_remote_decode"] is True
    assert asked["do_remote_prefill"] is False
    assert prefill == {"prompt": "one two", "max_tokens": 1, "stream": False, "stop": ["x"]}
    assert decode == {"prompt": "one two", "max_tokens": 9, "stop": ["x"], "kv_transfer_params": PARAMS}
    at_p, at_d = (one.headers[0]["X-Request-Id"] for one in world.engines.values())
    assert at_p == at_d
    assert at_p.startswith("r1-")
    assert (headers["X-Request-Id"], headers["X-PDInference-Prefill"]) == ("r1", "parameter")


async def test_prompts_that_p_computed_are_counted_before_d_answers() -> None:
    async with fleet("p", "d") as world:
        world["d"].fault = hang
        asked = asyncio.create_task(world.post())
        await world["d"].arrived.wait()
        assert await world.metric(METRIC_HANDED_OVER) == 1
        asked.cancel()
        await asyncio.wait([asked])
        world["d"].fault = None
        await world.post({"n": 2})
        assert await world.metric(METRIC_HANDED_OVER) == 1, "D computed this prompt"


async def test_mooncake_names_the_transfer_and_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet("p", "d", rules={"handover": "mooncake"}) as world:
        monkeypatch.setattr(HANDOVERS["mooncake"], "bootstrap_port", world["p"].port, raising=False)
        assert (await world.post({"stop": ["x"]}))[0] == 200
        world["p"].engine_ids = {"0": "after a restart"}
        assert (await world.post({"stop": ["x"]}))[0] == 200
        url = f"http://127.0.0.1:{world['p'].port}"
    first, second = (body["kv_transfer_params"] for body in world["d"].bodies)
    assert {key: first[key] for key in ("remote_engine_id", "remote_bootstrap_addr", "do_remote_prefill")} == {
        "remote_engine_id": ENGINE_ID,
        "remote_bootstrap_addr": url,
        "do_remote_prefill": True,
    }
    assert second["remote_engine_id"] == "after a restart"
    assert first["transfer_id"] != second["transfer_id"]
    sent = world["p"].bodies
    assert [body["kv_transfer_params"]["transfer_id"] for body in sent] == [first["transfer_id"], second["transfer_id"]]
    # P keeps the blocks only of a request that its length ended.
    assert all(body["ignore_eos"] and "stop" not in body for body in sent)
    assert "ignore_eos" not in world["d"].bodies[0]


async def test_two_requests_with_one_id_of_a_client_have_ids_of_their_own() -> None:
    """NixlPushConnector would give D the KV cache of either."""
    async with fleet("p", "d") as world:
        for _ in range(2):
            assert (await world.post(headers={"X-Request-Id": "same"}))[0] == 200
    first, second = (headers["X-Request-Id"] for headers in world["p"].headers)
    assert [headers["X-Request-Id"] for headers in world["d"].headers] == [first, second]
    assert first != second


async def test_p_and_d_have_one_id_where_vllm_takes_it_from_the_body() -> None:
    async with fleet("p", "d") as world:
        for members in ({}, {"request_id": "same"}):
            assert (await world.post(members, path="/v1/responses"))[0] == 200
    first, second = (body["request_id"] for body in world["p"].bodies)
    assert [body["request_id"] for body in world["d"].bodies] == [first, second]
    assert first != second
    assert first.startswith("resp_")


async def test_a_prompt_handover_adds_nothing() -> None:
    async with fleet("p", "d", rules={"handover": "prompt"}) as world:
        assert (await world.post())[0] == 200
    assert len(world["p"].bodies) == len(world["d"].bodies) == 1
    assert "kv_transfer_params" not in world["p"].bodies[0] | world["d"].bodies[0]


async def test_a_stream_is_passed_on_byte_for_byte() -> None:
    async with fleet("p", "d") as world:
        status, headers, body = await world.post({"stream": True, "stream_options": {"include_usage": True}})
    assert (status, body) == (200, b"".join(EVENTS))
    assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert "stream_options" not in world["p"].bodies[0]
    assert world["d"].bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("size", [1, 7, 40, 2_000_000])
async def test_events_that_come_in_pieces_are_passed_on(size: int) -> None:
    sent = b"".join(EVENTS) + b"no event" + (b"a" * 1_500_000 if size > 40 else b"")

    async def pieces(request: web.Request) -> web.StreamResponse:
        response = await events(request)
        for start in range(0, len(sent), size):
            await response.write(sent[start : start + size])
        return response

    async with fleet("p", "d") as world:
        world["d"].fault = pieces
        assert (await world.post({"stream": True}))[2] == sent


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/chat/completions", "max_completion_tokens"),
        ("/v1/responses", "max_output_tokens"),
        ("/v1/messages", "max_tokens"),
    ],
)
async def test_p_generates_one_token_at_each_endpoint(path: str, limit: str) -> None:
    async with fleet("p", "d") as world:
        assert (await world.post({limit: 7}, path=path))[0] == 200
    assert world["p"].bodies[0][limit] == 1
    assert world["d"].bodies[0][limit] == 7


@pytest.mark.parametrize(
    "body",
    [
        {"n": 2},
        {"n": [1]},
        {"prompt": ["a", "b"]},
        {"prompt": [[1, 2], [3]]},
        {"echo": True},
        {"prompt_logprobs": 1},
    ],
)
async def test_what_one_handover_cannot_carry_goes_to_d_alone(body: dict[str, object]) -> None:
    """One set of blocks belongs to one prompt and one reader."""
    async with fleet("p", "d") as world:
        status, headers, _ = await world.post(body)
    assert status == 200
    assert not world["p"].bodies
    assert len(world["d"].bodies) == 1
    assert "X-PDInference-Prefill" not in headers


@pytest.mark.parametrize("prompt", [[1, 2, 3], ["one two"], [[1, 2, 3]], ['a \\"] \\" b']])
async def test_a_list_with_one_prompt_is_one_prompt(prompt: object) -> None:
    async with fleet("p", "d") as world:
        await world.post({"prompt": prompt})
    assert [body["prompt"] for body in world["p"].bodies] == [prompt]


async def test_endpoints_without_tokens_go_to_d_alone() -> None:
    async with fleet("p", "d") as world:
        status, _, body = await world.post(path="/v1/embeddings")
    assert (status, body["path"]) == (200, "/v1/embeddings")
    assert not world["p"].bodies


async def test_clients_cannot_choose_where_d_reads_kv_cache() -> None:
    foreign = {"kv_transfer_params": {"do_remote_prefill": True, "remote_host": "10.0.0.9"}}
    async with fleet("p", "d") as world:
        await world.post(foreign)
        await world.post({"n": 2, **foreign})
    assert "10.0.0.9" not in json.dumps([world["d"].bodies[0].get("kv_transfer_params"), world["d"].bodies[1]])


async def test_what_p_refuses_is_the_answer() -> None:
    from tests.router.engines import status as answers  # noqa: PLC0415

    async with fleet("p", "d") as world:
        world["p"].fault = answers(400)
        status, _, body = await world.post()
    assert (status, body["error"]["message"]) == (400, "by the test")
    assert not world["d"].bodies
