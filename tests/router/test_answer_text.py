"""The text of an answer, as the next turn of the conversation has it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.router.answer_text import AnswerText, content_of


def event(**delta: Any) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]}, separators=(',', ':'))}\n\n".encode()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_the_text_of_a_stream(parts: list[str]) -> None:
    found = AnswerText()
    found.take(event(role="assistant", content=""))
    for part in parts:
        found.take(event(content=part))
    assert found.content == "".join(parts)
    body = {"choices": [{"message": {"role": "assistant", "content": "".join(parts), "tool_calls": []}}]}
    assert content_of(json.dumps(body).encode()) == "".join(parts)


@pytest.mark.parametrize(
    "more", [{"reasoning": "hm"}, {"reasoning_content": "hm"}, {"tool_calls": [{"index": 0}]}, {"refusal": "no"}]
)
def test_more_than_a_text_is_none(more: dict[str, Any]) -> None:
    """A client may leave it out in the next turn."""
    found = AnswerText()
    found.take(event(content="a") + event(**more))
    found.take(event(content="b"))
    assert found.content == ""
    assert content_of(json.dumps({"choices": [{"message": {"content": "a", **more}}]}).encode()) == ""


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"choices": []}', b'{"choices": [{}, {}]}', b'{"choices": [{}]}', b"x" * 2**17]
)
def test_what_has_no_text(body: bytes) -> None:
    assert content_of(body) == ""


def test_a_long_text_is_not_kept() -> None:
    found = AnswerText()
    for _ in range(100):
        found.take(event(content="a" * 1000))
    assert found.content == ""
