"""A stream that loses its D pod continues at another one, by the ids of its tokens.

The next D pod gets the prompt and the generated tokens as a prompt, and generates the rest. The result is that of an
undisturbed stream only where the tokens so far do not influence the rest in another way than as a prompt. All other
requests end with an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import msgspec

from pdinference.router.calls import Call, is_empty, text_of
from pdinference.router.events import BOUNDARY, DATA, problem_at_the_beginning
from pdinference.router.replaced import replaced
from pdinference.router.untrusted import NotJsonError, decoded
from pdinference.router.usage import Usage

_COMPLETIONS: Final = "/v1/completions"
_CHAT: Final = "/v1/chat/completions"
_DONE: Final = b"data: [DONE]\n\n"

_NOT_EXACT: Final = frozenset(
    {
        # Parsers and grammars have a state.
        "tools",
        "functions",
        "structured_outputs",
        "thinking_token_budget",
        "reasoning_effort",
        # They count or compare generated tokens only.
        "presence_penalty",
        "frequency_penalty",
        "bad_words",
        "stop",
        "repetition_detection",
        # What was sent to the client cannot be continued.
        "logprobs",
        "top_logprobs",
        "suffix",
        "echo",
        "prompt_embeds",
        "use_beam_search",
        "vllm_xargs",
    }
)
_KEPT: Final = (
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "stop_token_ids",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "watermarking",
    "stream_options",
    "stream_interval",
    "user",
    "priority",
    "cache_salt",
    "session_id",
)
_ZERO: Final = (b"0", b"0.0")
_DEFAULT_TRUE: Final = (None, b"null", b"true")
_PLAIN_DELTA: Final = frozenset({"role", "content"})
_TOKEN_IDS: Final = "token_ids"  # noqa: S105 - a member of chunks
_PROMPT_IDS: Final = "prompt_token_ids"
_RETURN_IDS: Final = "return_token_ids"
_MOST_TOKENS: Final = 2**20
"""Tokens of a stream that are kept. A longer one does not continue at another pod."""
_TokenIds = list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]]


class StreamFaultError(Exception):
    """The stream has an error of the server, or is no stream of vLLM."""


class _Choice(msgspec.Struct):
    """A choice of a chunk, as far as it is read."""

    text: str | None = None
    delta: dict[str, Any] | None = None
    finish_reason: str | None = None
    token_ids: _TokenIds | None = None
    prompt_token_ids: _TokenIds | None = None


class _Chunk(msgspec.Struct):
    """A chunk of D, as far as it is read."""

    id: str | None = None
    object: str | None = None
    created: int | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    prompt_token_ids: _TokenIds | None = None


def can_migrate(call: Call) -> bool:
    """Whether another D pod could continue the stream exactly."""
    if not (call.split and call.stream and call.path in {_COMPLETIONS, _CHAT}):
        return False
    members = call.members()
    if not all(is_empty(members.get(name)) for name in _NOT_EXACT):
        return False
    if text_of(members.get("include_reasoning")) not in _DEFAULT_TRUE:  # vLLM then gives no ids
        return False
    if not (is_empty(members.get("response_format")) or _fits(members["response_format"], _TextFormat)):
        return False
    if text_of(members.get("seed")) not in (None, b"null") and text_of(members.get("temperature")) not in _ZERO:
        return False  # another engine begins with another state of its generator
    return call.path == _COMPLETIONS or _fits(members.get("messages", msgspec.Raw(b"[]")), list[_Message])


class _TextPart(msgspec.Struct):
    """A part of a message."""

    type: Literal["text"]


class _Message(msgspec.Struct):
    """A message of a chat that is text only."""

    content: str | list[_TextPart]


class _TextFormat(msgspec.Struct, forbid_unknown_fields=True):
    """The default of `response_format`."""

    type: Literal["text"]


def _fits(value: msgspec.Raw, type_: Any) -> bool:
    try:
        decoded(value, type_)
    except NotJsonError:
        return False
    return True


def with_token_ids(call: Call) -> Call:
    """The same call, whose chunks have token ids."""
    return call.changed({**call.members(), _RETURN_IDS: True})


class StreamProgress:
    """How far a stream has come.

    Args:
        call: The call of the client.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._ids_wanted = not is_empty(call.members().get(_RETURN_IDS))
        self._prompt: list[int] = []
        self._tokens: list[int] = []
        self._shown = 0  # of them: up to the last one that came with text
        self._head: dict[str, Any] = {}
        self._plain = True
        self._finished = False
        self._has_usage = False
        self._is_done = False
        self._continued = False

    @property
    def can_continue(self) -> bool:
        """Whether nothing was sent, or nothing but text, of a prompt whose tokens are known."""
        can_repeat = self._finished or not self._ids_wanted or self._shown == len(self._tokens)
        return not self._head or (bool(self._prompt) and self._plain and can_repeat)

    @property
    def usage(self) -> Usage | None:
        """The tokens so far; None if they are not known."""
        return Usage(len(self._prompt), len(self._tokens)) if self._prompt else None

    def take(self, data: bytes) -> bytes:
        """The events for the client.

        Args:
            data: The next events of D, each of them whole.

        Raises:
            StreamFaultError: The stream has an error.
        """
        return b"".join(self._event(event) for event in data.split(BOUNDARY) if event)

    def _event(self, event: bytes) -> bytes:
        if not event.startswith(DATA) or event + BOUNDARY == _DONE:
            self._is_done |= event + BOUNDARY == _DONE
            return event + BOUNDARY
        problem = problem_at_the_beginning(event)
        if problem is not None and not problem.is_fault:  # of the request: another pod would say the same
            return event + BOUNDARY
        chunk, form = _read(event.removeprefix(DATA))
        self._note(form)
        for place in (chunk, *(chunk.get("choices") or ())):
            if not self._ids_wanted or self._continued:
                place.pop(_PROMPT_IDS, None)
            if not self._ids_wanted:
                place.pop(_TOKEN_IDS, None)
        return _encoded(self._as_begun(chunk) if self._continued else chunk)

    def _note(self, chunk: _Chunk) -> None:
        """Note how far the stream has come with a chunk."""
        choices = chunk.choices or []
        prompts = (chunk.prompt_token_ids, *(choice.prompt_token_ids for choice in choices))
        self._prompt = self._prompt or next((ids for ids in prompts if ids), [])
        for choice in choices:
            self._tokens += choice.token_ids or ()
            if choice.text or (choice.delta or {}).get("content"):
                self._shown = len(self._tokens)
                self._plain &= bool(choice.token_ids)
            self._finished |= choice.finish_reason is not None
            self._plain &= not any(value for name, value in (choice.delta or {}).items() if name not in _PLAIN_DELTA)
        self._has_usage |= bool(chunk.usage) and not choices  # of the whole stream; others are of each chunk
        if len(self._prompt) + len(self._tokens) > _MOST_TOKENS:
            self._prompt, self._tokens, self._plain = [], [], False
        if not self._head:
            self._head = {"id": chunk.id, "object": chunk.object, "created": chunk.created, "model": chunk.model}

    def _as_begun(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """A chunk of the continued stream in the form of the one that the client has."""
        chunk |= self._head
        if chunk.get("usage"):
            chunk["usage"] = self._usage()
        if self._call.path == _CHAT:
            chunk["choices"] = [
                {
                    **{name: value for name, value in choice.items() if name != "text"},
                    "delta": _without_role(choice.get("delta")) or {"content": choice.get("text") or ""},
                }
                for choice in chunk.get("choices") or ()
            ]
        return chunk

    def _usage(self) -> dict[str, int]:
        prompt, completion = len(self._prompt), len(self._tokens)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def next_call(self) -> Call | None:
        """The call that continues the stream; None if only its end is missing."""
        if not self._head:
            return with_token_ids(self._call)
        limit = self._limit()
        if self._finished or (limit is not None and limit <= len(self._tokens)):
            return None
        self._continued = True
        # What has not become text yet is generated again: a part of a character at the end of a prompt would have the
        # detokenizer repeat all of the prompt.
        del self._tokens[self._shown :]
        if not self._tokens:  # and a completion would show what the model of a chat thinks
            return with_token_ids(self._call)
        found = self._call.members()
        kept: dict[str, Any] = {name: found[name] for name in _KEPT if name in found}
        more = {
            "prompt": self._prompt + self._tokens,
            # Without a limit, chat generates up to the end of the context, completions 16 tokens.
            "max_tokens": None if limit is None else limit - len(self._tokens),
            "min_tokens": max(0, (_number(found, "min_tokens") or 0) - len(self._tokens)),
            "stream": True,
            _RETURN_IDS: True,
        }
        return replace(self._call.changed(kept | more), path=_COMPLETIONS)

    def _limit(self) -> int | None:
        options = replaced(self._call.path, self._call.members())
        return None if options is None else options.limit()

    def end(self) -> bytes:
        """The events that are missing at the end of a stream whose tokens are complete."""
        return b"".join(self._end())

    def _end(self) -> Iterator[bytes]:
        if not self._finished:
            content: Mapping[str, Any] = {"delta": {"content": ""}} if self._call.path == _CHAT else {"text": ""}
            yield _encoded({**self._head, "choices": [{"index": 0, **content, "finish_reason": "length"}]})
        if self._call.wants_usage and not self._has_usage:
            yield _encoded({**self._head, "choices": [], "usage": self._usage()})
        if not self._is_done:
            yield _DONE


def _read(data: bytes) -> tuple[dict[str, Any], _Chunk]:
    """The data of an event: all of it, and what is read of it.

    Raises:
        StreamFaultError: It is an error, or no chunk of vLLM.
    """
    try:
        chunk: dict[str, Any] = decoded(data, dict[str, Any])
        if chunk.get("error") is not None:
            raise StreamFaultError("error_event")
        return chunk, msgspec.convert(chunk, _Chunk)
    except (NotJsonError, msgspec.ValidationError) as error:
        raise StreamFaultError(f"malformed_event: {error}") from None


def _without_role(delta: Mapping[str, Any] | None) -> dict[str, Any]:
    """A delta for a client that has had the role."""
    return {name: value for name, value in (delta or {}).items() if name != "role"}


def _number(members: Mapping[str, msgspec.Raw], name: str) -> int | None:
    """A number that vLLM has accepted; None if there is none. It also accepts 5.0 and "5"."""
    try:
        return int(msgspec.json.decode(members[name]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _encoded(chunk: Mapping[str, Any]) -> bytes:
    return DATA + msgspec.json.encode(chunk) + BOUNDARY
