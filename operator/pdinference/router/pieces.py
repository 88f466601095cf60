"""A request's prompt as a chain of pieces, so that a later turn of a conversation begins with the same ones.

A piece is at most 2 KiB of the tools, of a message, or of a prompt. What else changes the prompt's tokens comes first:
the model, the chat template. Messages are compared by role and content. An image within one is its hash alone. A client
that alters one, or leaves out what the model thought, has the pieces before it in common alone.

Tests: tests/router/test_pieces.py
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from pdinference.router.calls import Call
from pdinference.router.prefixes import Chain
from pdinference.router.untrusted import NotJsonError, decoded

_PIECE: Final = 2048
_MOST_PIECES: Final = 1024
"""Of one prompt. What comes after them is not compared: many small messages must not fill the index."""
_MOST_BRACES: Final = 2**14
"""In all messages. To decode more objects takes too long for the event loop; a text with as many is not compared."""
_LONGEST: Final = 2**20
"""Bytes of a request that is compared. With a longer one, the index would have little room for others."""
_PROMPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "/v1/chat/completions": ("messages",),
    "/v1/completions": ("prompt",),
    "/v1/messages": ("system", "messages"),
    "/v1/responses": ("instructions", "input"),
}
"""Members with the prompt, by endpoint."""
_TOOLS: Final = "tools"
_EMBEDDED: Final = re.compile(rb'data:[^"]{256,}')
"""An image or the like within the request. Its bytes say nothing of its tokens."""
_NULL: Final = msgspec.Raw(b"null")
_NONE: Final = (b"null", b"[]")
_NOT_IN_PROMPTS: Final = frozenset(
    {
        "max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "temperature", "top_p", "top_k",
        "min_p", "seed", "stop", "stop_token_ids", "stream", "stream_options", "n", "logprobs", "top_logprobs", "user",
        "metadata", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "ignore_eos",
        "priority", "session_id", "store", "service_tier", "response_format", "structured_outputs", "request_id",
        "prompt_cache_key", "safety_identifier", "parallel_tool_calls", "tool_choice", "return_token_ids",
    }
)  # fmt: skip
"""Members that change the answer, and not the tokens of the prompt. Any other one does, for all that is known."""


class _Message(msgspec.Struct):
    role: str = ""
    content: str | None = None
    tool_calls: msgspec.Raw = _NULL
    tool_call_id: msgspec.Raw = _NULL
    name: msgspec.Raw = _NULL


class _MessageOfParts(_Message):
    content: msgspec.Raw = _NULL  # type: ignore[assignment]


_FORMS: Final = (list[_Message], list[_MessageOfParts])


def chain_of(call: Call) -> Chain:
    """The chain of a prompt; an empty one if it is not compared with others."""
    named = _PROMPTS.get(call.path)
    if not call.json or named is None or len(call.body) > _LONGEST:
        return Chain()
    members = call.members()
    named = (_TOOLS, *named)
    others = (name for name in sorted(members) if name not in _NOT_IN_PROMPTS and name not in named)
    first = hash((call.path, *((name, bytes(members[name])) for name in others)))
    pieces = (piece for text in _texts(members, named) for piece in _pieces(text))
    return Chain.of(islice(pieces, _MOST_PIECES), first)


def of_answer(content: str) -> Iterator[bytes]:
    """The pieces of an answer of `/v1/chat/completions`, as a client sends it back in the next turn."""
    return _pieces(_text_of("assistant", content.encode()))


def _pieces(text: bytes) -> Iterator[bytes]:
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def _texts(members: Mapping[str, msgspec.Raw], named: tuple[str, ...]) -> Iterator[bytes]:
    """The parts of a prompt that a later one may have in common: messages, or the whole text."""
    for name in named:
        raw = members.get(name)
        if raw is None:
            continue
        if name == "messages":
            yield from _messages(raw)
        else:
            yield bytes(raw)


def _messages(raw: msgspec.Raw) -> Iterator[bytes]:
    for message in _decoded(raw):
        text = _text_of(message.role, _content(message.content))
        others = [one for one in (message.tool_calls, message.tool_call_id, message.name) if one is not _NULL]
        yield text + b"".join(b"\0" + bytes(value) for value in others if bytes(value) not in _NONE) if others else text


def _decoded(raw: msgspec.Raw) -> Sequence[_Message]:
    """The messages; those with images and the like have contents of several parts. None if vLLM refuses them."""
    if bytes(raw).count(b"{") > _MOST_BRACES:
        return ()
    for form in _FORMS:
        with suppress(NotJsonError):
            messages: Sequence[_Message] = decoded(raw, form)
            return messages
    return ()


def _content(content: str | msgspec.Raw | None) -> bytes:
    """A text as it is, and not as it is escaped; anything else as it came."""
    if isinstance(content, str):
        return content.encode(errors="surrogatepass")
    return b"null" if content is None else _EMBEDDED.sub(_hash, bytes(content))


def _hash(embedded: re.Match[bytes]) -> bytes:
    return b"%d" % hash(embedded[0])


def _text_of(role: str, content: bytes) -> bytes:
    return role.encode() + b"\0" + content
