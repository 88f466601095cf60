"""Prompts as chains of pieces: what two requests have in common."""

import json
from typing import Any

import pytest
from multidict import CIMultiDict

from pdinference.router.calls import Call, read_call
from pdinference.router.pieces import chain_of, of_answer
from pdinference.router.prefixes import Chain

CHAT = "/v1/chat/completions"
SYSTEM = {"role": "system", "content": "You are kind. " * 400}
ASKED = {"role": "user", "content": 'What is "1 + 1"?\n'}
ANSWERED = {"role": "assistant", "content": "It is\u00a02 ☺."}
NEXT = {"role": "user", "content": "And 2 + 2?"}


async def called(path: str = CHAT, **members: Any) -> Call:
    return await read_call(path, json.dumps({"model": "m"} | members).encode(), "application/json", CIMultiDict())


async def chained(*messages: dict[str, Any], **members: Any) -> Chain:
    return chain_of(await called(messages=list(messages), **members))


def common(one: Chain, other: Chain) -> int:
    """Bytes that two prompts have in common."""
    same = [end for a, b, end in zip(one.hashes, other.hashes, one.ends, strict=False) if a == b]
    return same[-1] if same else 0


async def test_the_next_turn_begins_with_the_conversation_and_its_answer() -> None:
    before = await chained(SYSTEM, ASKED, max_tokens=9, stream=True)
    after = await chained(SYSTEM, ASKED, ANSWERED, NEXT, temperature=0.5)
    assert common(before, after) == before.size
    with_answer = before.extended(of_answer(ANSWERED["content"]))
    assert common(with_answer, after) == with_answer.size < after.size


async def test_a_long_system_prompt_is_shared_by_others() -> None:
    one, other = await chained(SYSTEM, ASKED), await chained(SYSTEM, NEXT)
    assert common(one, other) == len("system\0") + len(SYSTEM["content"])


@pytest.mark.parametrize(
    "edited",
    [
        ANSWERED | {"content": "It is 3."},
        ANSWERED | {"reasoning_content": "hm"} | {"content": "It is 2."},
        ANSWERED | {"tool_calls": [{"id": "1"}]},
        ANSWERED | {"role": "user"},
    ],
)
async def test_an_edited_message_ends_what_is_common(edited: dict[str, Any]) -> None:
    before = (await chained(SYSTEM, ASKED)).extended(of_answer(ANSWERED["content"]))
    after = await chained(SYSTEM, ASKED, edited, NEXT)
    assert common(before, after) == (await chained(SYSTEM, ASKED)).size


@pytest.mark.parametrize(
    "members",
    [
        {"model": "lora"},
        {"tools": [{"type": "function"}]},
        {"cache_salt": "of another tenant"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"a_member_of_a_later_vllm": 1},
    ],
)
async def test_what_changes_the_whole_prompt_leaves_nothing_in_common(members: dict[str, Any]) -> None:
    assert common(await chained(SYSTEM, ASKED), await chained(SYSTEM, ASKED, **members)) == 0


async def test_other_endpoints_have_chains_of_their_own() -> None:
    text = "a word " * 1000
    one, other = [chain_of(await called("/v1/completions", prompt=text + end)) for end in ("x", "y")]
    assert 6000 < common(one, other) < len(text)
    tokens = [chain_of(await called("/v1/completions", prompt=[*range(1000), end])) for end in (5, 6)]
    assert common(*tokens) == 4096
    claude = [await called("/v1/messages", system="s" * 4096, messages=[each], max_tokens=1) for each in (ASKED, NEXT)]
    assert common(*map(chain_of, claude)) >= 4096
    assert chain_of(await called("/v1/embeddings", input="a")) == Chain()


@pytest.mark.parametrize("messages", ["no list", [1], [{"role": 1}], [{"content": 5}], {}])
async def test_what_is_no_conversation_has_no_pieces_or_some(messages: Any) -> None:
    """vLLM refuses it; nothing of it may stop the router."""
    assert isinstance(chain_of(await called(messages=messages)), Chain)


async def test_many_small_messages_have_some_pieces() -> None:
    assert len((await chained(*[ASKED] * 5000)).hashes) == 1024


async def test_a_very_long_prompt_is_not_compared() -> None:
    assert chain_of(await called("/v1/completions", prompt="a" * 2**21)) == Chain()


async def test_a_million_objects_are_not_decoded() -> None:
    """They are compared with no other prompt: to decode them would stop all other requests for tens of milliseconds."""
    assert await chained(*({} for _ in range(300_000))) == Chain()
    assert (await chained(*({"role": "user", "content": "a"} for _ in range(16_000)))).size > 0


async def test_an_image_counts_as_the_same_or_another_one_and_not_by_its_bytes() -> None:
    def asks(image: str) -> dict[str, Any]:
        url = {"url": f"data:image/png;base64,{image * 100_000}"}
        return {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"image_url": url}]}

    one, same, other = [await chained(SYSTEM, asks(image)) for image in "AAB"]
    assert one == same
    assert one.size < 6000
    assert (await chained(SYSTEM)).size <= common(one, other) < one.size


async def test_tools_count_as_a_part_of_the_prompt() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d" * 4000}}]
    one, other = await chained(SYSTEM, ASKED, tools=tools), await chained(SYSTEM, NEXT, tools=tools)
    assert common(one, other) > 4000 + (await chained(SYSTEM)).size
