"""The text of an answer of `/v1/chat/completions`, with which the next turn of a conversation begins.

An answer that has more than a text (what the model thought, calls of tools) has none here: what a client sends back of
it is not known.

Tests: tests/router/test_answer_text.py
"""

import re
from typing import Final

import msgspec

from pdinference.router.untrusted import NotJsonError, decoded

PATH: Final = "/v1/chat/completions"
_CONTENT: Final = re.compile(rb'"content": ?"((?:[^"\\]|\\.)*+)"')
_MORE: Final = re.compile(rb'"(?:reasoning|reasoning_content|tool_calls|refusal)": ?+(?!null|""|\[\])')
_LONGEST: Final = 2**16


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)


class _Answer(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list)


class AnswerText:
    """The text of a stream, from the beginning of its events on; a long one is not kept."""

    def __init__(self) -> None:
        self._parts = bytearray()
        self._is_kept = True

    def take(self, events: bytes) -> None:
        """Take whole events."""
        if not self._is_kept:
            return
        if _MORE.search(events):
            self._is_kept = False
        for part in _CONTENT.findall(events):
            self._parts += part
        if len(self._parts) > _LONGEST or not self._is_kept:
            self._is_kept = False
            self._parts.clear()

    @property
    def content(self) -> str:
        """The text; empty if it is not known."""
        try:
            return decoded(b'"%b"' % bytes(self._parts), str) if self._parts else ""
        except NotJsonError:
            return ""


def content_of(body: bytes) -> str:
    """The text of a complete answer; empty if it is not known."""
    if len(body) > _LONGEST or _MORE.search(body):
        return ""
    try:
        answer: _Answer = decoded(body, _Answer)
        (choice,) = answer.choices
    except (NotJsonError, ValueError):
        return ""
    return choice.message.content or ""
