"""Requests whose members P gets in another form: P gets those that vLLM accepts, D alone those that it refuses."""

from typing import Any

import pytest

from tests.router.engines import EVENTS, fleet

_COMPLETIONS, _CHAT, _MESSAGES, _RESPONSES = (
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
)
_LIMIT = {_COMPLETIONS: "max_tokens", _CHAT: "max_tokens", _MESSAGES: "max_tokens", _RESPONSES: "max_output_tokens"}


async def prefills(body: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """What P got of a request."""
    async with fleet("p", "d") as world:
        assert (await world.post(body, path=path))[0] == 200
        assert len(world["d"].bodies) == 1
        assert {name: world["d"].bodies[0].get(name) for name in body if name != "stream_options"} == {
            name: value for name, value in body.items() if name != "stream_options"
        }
        return world["p"].bodies


@pytest.mark.parametrize("path", _LIMIT)
@pytest.mark.parametrize("limit", [2.5, 0, -1, "x", [1], {}, ""])
async def test_p_computes_nothing_for_a_limit_that_vllm_refuses(path: str, limit: object) -> None:
    assert not await prefills({_LIMIT[path]: limit}, path)


@pytest.mark.parametrize("path", _LIMIT)
@pytest.mark.parametrize("limit", [3, 3.0, "3", True])
async def test_p_gets_one_token_of_a_limit_that_vllm_coerces(path: str, limit: object) -> None:
    (prefill,) = await prefills({_LIMIT[path]: limit}, path)
    assert prefill[_LIMIT[path]] == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (_MESSAGES, {"max_tokens": None}),
        (_MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 9}}),
        (_MESSAGES, {"thinking": {"type": "other"}}),
        (_RESPONSES, {"store": "maybe"}),
        (_CHAT, {"max_completion_tokens": 2.5}),
        (_COMPLETIONS, {"stream": "maybe"}),
        (_COMPLETIONS, {"stream_options": {"include_usage": True}}),
        (_COMPLETIONS, {"stream_options": 5}),
        (_COMPLETIONS, {"stream": True, "stream_options": {"include_usage": "maybe"}}),
        (_COMPLETIONS, {"stream": True, "stream_options": {"continuous_usage_stats": 7}}),
        (_COMPLETIONS, {"stream": True, "stream_options": [1] * 100_000}),
        (_COMPLETIONS, {"min_tokens": -1}),
        (_COMPLETIONS, {"min_tokens": 10}),
        (_COMPLETIONS, {"max_tokens": None, "min_tokens": 17}),
        (_COMPLETIONS, {"min_tokens": None}),
        (_COMPLETIONS, {"stop": 5}),
        (_COMPLETIONS, {"ignore_eos": "x"}),
    ],
)
async def test_p_computes_nothing_for_members_that_vllm_refuses(path: str, body: dict[str, Any]) -> None:
    assert not await prefills(body, path)


@pytest.mark.parametrize(
    "body",
    [
        {"max_tokens": None},
        {"stream": None},
        {"stream_options": {}},
        {"stream_options": None},
        {"min_tokens": "2"},
        {"stop": ["a"]},
        {"n": "1"},
        {"best_of": 3},
        {"store": "maybe"},
        {"thinking": 5},
    ],
)
async def test_p_computes_the_prompt_if_vllm_accepts_or_ignores_a_member(body: dict[str, Any]) -> None:
    assert len(await prefills(body, _COMPLETIONS)) == 1


@pytest.mark.parametrize(
    "body", [{"top_logprobs": 3}, {"logprobs": "x"}, {"n": None}, {"temperature": -1}, {"stop_token_ids": []}]
)
async def test_p_gets_what_it_can_refuse_itself(body: dict[str, Any]) -> None:
    (prefill,) = await prefills(body, _COMPLETIONS)
    assert prefill.items() >= body.items()


@pytest.mark.parametrize("value", [1, "yes", "on", "true", 1.0, True])
async def test_a_client_that_wants_usage_in_any_form_gets_it(value: object) -> None:
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}\n\n'
    async with fleet("p", "d") as world:
        EVENTS.insert(3, usage)
        try:
            _, _, body = await world.post({"stream": True, "stream_options": {"include_usage": value}})
        finally:
            EVENTS.remove(usage)
        assert usage in body
        assert world["d"].bodies[0]["stream_options"] == {"include_usage": value}


@pytest.mark.parametrize("value", [0, "no", False, None, "off"])
async def test_a_client_that_does_not_want_usage_gets_none(value: object) -> None:
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}\n\n'
    async with fleet("p", "d") as world:
        EVENTS.insert(3, usage)
        try:
            _, _, body = await world.post({"stream": True, "stream_options": {"include_usage": value}})
        finally:
            EVENTS.remove(usage)
        assert usage not in body
        assert world["d"].bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("member", [{"previous_response_id": "resp_1"}, {"background": True}])
async def test_what_needs_the_pod_that_has_a_response_is_refused(member: dict[str, Any]) -> None:
    async with fleet("p", "d") as world:
        status, _, body = await world.post(member, path=_RESPONSES)
        assert (status, next(iter(member)) in body["error"]["message"]) == (400, True)
        assert (await world.post({"background": False, "previous_response_id": None}, path=_RESPONSES))[0] == 200
    assert len(world["d"].bodies) == 1
