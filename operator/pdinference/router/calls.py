"""What clients may call, and what a request means for P and D.

Tests: tests/router/test_handover.py, tests/router/test_replaced.py, tests/router/test_arguments.py
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

import msgspec
from multidict import CIMultiDict

from pdinference.engine.connectors.handover import MEMBER, TransferParams
from pdinference.router.arguments import ARGUMENTS, ArgumentError, checked, is_internal
from pdinference.router.endpoints import POST
from pdinference.router.fair_shares import HEADER
from pdinference.router.forms import FORM, FormError, rewritten
from pdinference.router.replaced import STREAM_OPTIONS, replaced
from pdinference.router.untrusted import PIECE, NotJsonError, decoded

REQUEST_ID: Final = "X-Request-Id"
_ID_IN_BODY: Final = "/v1/responses"
_BYTES_PER_TOKEN: Final = 4
"""Of English text in UTF-8. Loads of P are compared with each other, so only the ratio of two prompts matters."""
_JSON: Final = "application/json"
_PRIORITY: Final = "priority"
"""Member of all bodies but those of Anthropic's API, for which vLLM reads the header; others have no header."""

_PROMPTS: Final = "/v1/completions"
"""Endpoint that takes several prompts."""
_NOT_SPLIT: Final = dict.fromkeys((_PROMPTS, "/v1/chat/completions"), ("use_beam_search", "prompt_logprobs", "echo"))
_NOT_FOR_PREFILL: Final = (STREAM_OPTIONS, "min_tokens")
_OF_ONE_POD: Final[Mapping[str, str]] = {
    "previous_response_id": "Responses are not kept for other requests. Send the whole conversation in `input`.",
    "background": "The result of a request in the background could not be fetched. Use `stream` for long answers.",
}
"""Members of `/v1/responses` that need the D pod that has the response, and what a client can do."""

_EMPTY: Final = (None, b"null", b"false", b"0", b"0.0", b'""', b"[]", b"{}")
_ONE_PROMPT: Final = re.compile(rb'"|\[\s*+-?[0-9]')
"""A text, or the ids of its tokens. vLLM refuses an array of both."""
_MOST_MEMBERS: Final = 500
_LONGEST_NAME: Final = 1000


class MalformedError(Exception):
    """The body is not a JSON object, or did not come.

    Attributes:
        status: HTTP status of the response.
    """

    def __init__(self, message: str, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Call:
    """A request of a client. Its body is kept as it came: small values of JSON take thirty times their size as objects.

    Attributes:
        path: Path of the endpoint.
        body: The body as it came.
        json: Whether the body is an object in JSON. If not, D gets it as it is.
        split: Whether P computes the prompt.
        stream: Whether the client wants a stream of events.
        one_token: Whether the answer has one token, and so comes with the first one without being a stream.
        is_understood: Whether the options of a call for tokens have forms that vLLM accepts.
        wants_usage: Whether the client wants the number of tokens at the end of the stream.
        headers: Headers for vLLM.
        session: Key of the session; empty without one.
        stream_options: Options of the stream for D, in place of those of the client; None to leave them.
        place: Its place in the queue of the pod, in place of that of the client; None to leave it.
        found: What `members` gives; None before the body has been read, which takes 60 ms for 16 MiB.
    """

    path: str
    body: bytes
    json: bool = False
    split: bool = False
    stream: bool = False
    one_token: bool = False
    is_understood: bool = False
    wants_usage: bool = False
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    session: str = ""
    stream_options: Mapping[str, Any] | None = None
    place: int | None = None
    found: dict[str, msgspec.Raw] | None = field(default=None, repr=False)

    @property
    def tokens(self) -> int:
        """Estimate of the number of prompt tokens, for the load of P."""
        return 1 + len(self.body) // _BYTES_PER_TOKEN

    def members(self) -> dict[str, msgspec.Raw]:
        """The members of the body, whose values are not decoded, without those that clients may not set.

        Raises:
            NotJsonError: It is not an object.
        """
        if self.found is not None:
            return self.found.copy()
        members: dict[str, msgspec.Raw] = decoded(self.body, dict[str, msgspec.Raw])
        return {name: value for name, value in members.items() if not is_internal(name)}

    def for_prefill(self, params: TransferParams | None, more: Mapping[str, Any]) -> bytes:
        """The body for P: the same prompt, one token, no stream.

        Args:
            params: Parameters of the hand-over.
            more: Further members; None removes one.
        """
        limits = POST[self.path]
        members: dict[str, Any] = {
            name: value for name, value in self.members().items() if name not in _NOT_FOR_PREFILL
        }
        if "max_output_tokens" in limits:
            members["store"] = False
        named = [name for name in limits if name in members] or list(limits[:1])
        members |= {"stream": False, **dict.fromkeys(named, 1)}
        members |= self._placed
        for name, value in more.items():
            members.pop(name, None)
            if value is not None:
                members[name] = value
        return msgspec.json.encode(members | ({} if params is None else {MEMBER: params}))

    def for_decode(self, params: TransferParams | None) -> bytes:
        """The body for D."""
        if not self.json:
            return self.body
        members: dict[str, Any] = {**self.members(), **self._placed, **({} if params is None else {MEMBER: params})}
        if self.stream_options is not None:
            members[STREAM_OPTIONS] = self.stream_options
        return msgspec.json.encode(members)

    @property
    def _placed(self) -> dict[str, int]:
        return {} if self.place is None else {_PRIORITY: self.place}

    def with_request_id(self, request_id: str) -> "Call":
        """The same call under another request id. vLLM takes it from the header, or for one endpoint from the body."""
        headers = self.headers.copy()
        headers[REQUEST_ID] = request_id
        call = replace(self, headers=headers)
        if self.path != _ID_IN_BODY:
            return call
        return call.changed({**self.members(), "request_id": f"resp_{request_id}"})

    def placed(self, number: int) -> "Call":
        """The same call with a place in the queue of the pod."""
        headers = self.headers.copy()
        headers[HEADER] = str(number)
        return replace(self, headers=headers, place=number)

    def changed(self, members: Mapping[str, Any]) -> "Call":
        """The same call with these members, and no others."""
        return replace(self, body=msgspec.json.encode(members), found=None)


async def read_call(
    path: str,
    body: bytes,
    content_type: str,
    headers: CIMultiDict[str],
    session: str = "",
    *,
    custom_arguments: bool = False,
) -> Call:
    """Read the body of a request to one of the endpoints in `POST`, but for those in `FORMS`, after `check_text`.

    Args:
        path: Path of the endpoint.
        body: The body as it came.
        content_type: The header as it came.
        headers: Headers for vLLM. The one with the content type is set.
        session: Key of the session.
        custom_arguments: Whether vLLM runs logits processors of the user's, with arguments of their own.

    Raises:
        MalformedError: The body is not of the form that the endpoint takes, or has something that may not pass.
    """
    # As vLLM does (vllm/entrypoints/serve/utils/api_utils.py).
    if content_type.lower().split(";", maxsplit=1)[0] != _JSON:
        raise MalformedError("Unsupported Media Type: Only 'application/json' is allowed")
    headers["Content-Type"] = _JSON
    call = Call(path, body, json=True, headers=headers, session=session)
    members: dict[str, Any] = members_of(body)
    if len(body) > PIECE:
        await asyncio.sleep(0)  # reading one of them may take as long again
    if ARGUMENTS in members:
        members[ARGUMENTS] = _arguments(members[ARGUMENTS], custom=custom_arguments)
        call = call.changed(members)
    call = replace(call, found=members)
    return _of_tokens(call, members) if POST[path] else call


async def read_form(
    path: str,
    body: bytes,
    content_type: str,
    headers: CIMultiDict[str],
    session: str = "",
    *,
    custom_arguments: bool = False,
) -> Call:
    """Read the body of a request to one of the endpoints in `FORMS`. The arguments are those of `read_call`.

    Raises:
        MalformedError: The body is not a form, or has something that may not pass.
    """
    if content_type.lower().split(";", maxsplit=1)[0].strip() != FORM:
        raise MalformedError(f"Unsupported Media Type: Only '{FORM}' is allowed")
    try:
        body, headers["Content-Type"] = await rewritten(body, content_type, custom_arguments=custom_arguments)
    except FormError as error:
        raise MalformedError(str(error)) from None
    return Call(path, body, headers=headers, session=session)


def members_of(body: bytes) -> dict[str, msgspec.Raw]:
    """The members of a body, without those that clients may not set.

    Raises:
        MalformedError: It is not an object, or has too many members.
    """
    try:
        members = Call("", body).members()
    except NotJsonError as error:
        raise MalformedError(f"The body is not a JSON object: {error}") from None
    if len(members) > _MOST_MEMBERS or any(len(name) > _LONGEST_NAME for name in members):
        raise MalformedError(f"The body has more than {_MOST_MEMBERS} members, or one with a very long name.")
    return members


def _arguments(value: msgspec.Raw, *, custom: bool) -> msgspec.Raw:
    """The arguments for extensions of vLLM, which may pass."""
    try:
        return msgspec.Raw(msgspec.json.encode(checked(value, custom=custom)))
    except ArgumentError as error:
        raise MalformedError(str(error)) from None


def _of_tokens(call: Call, members: Mapping[str, msgspec.Raw]) -> Call:
    """A call for generated tokens, and whether P computes its prompt."""
    if call.path == _ID_IN_BODY:
        for name, remedy in _OF_ONE_POD.items():
            if not is_empty(members.get(name)):
                raise MalformedError(f"`{name}` is not supported. {remedy}")
    options = replaced(call.path, members)
    if options is None:
        return replace(call, stream=text_of(members.get("stream")) == b"true")
    split = options.answers == 1 and _one_sequence(call.path, members)
    return replace(call, split=split, stream=bool(options.stream), is_understood=True, wants_usage=options.wants_usage)


def text_of(value: msgspec.Raw | None) -> bytes | None:
    """A value as it came; None if there is none."""
    return None if value is None else bytes(value)


def _one_sequence(path: str, members: Mapping[str, msgspec.Raw]) -> bool:
    """Whether one hand-over serves the request: KV cache of one prompt, whose tokens are computed in the usual way."""
    if not all(is_empty(members.get(name)) for name in _NOT_SPLIT.get(path, ())):
        return False
    return path != _PROMPTS or _is_one_prompt(members.get("prompt", msgspec.Raw(b'""')))


def _is_one_prompt(value: msgspec.Raw) -> bool:
    """Whether it is a prompt, or a list with one."""
    if _ONE_PROMPT.match(memoryview(value)):
        return True
    try:
        (value,) = decoded(value, tuple[msgspec.Raw])
    except NotJsonError:
        return False
    return _ONE_PROMPT.match(memoryview(value)) is not None


def is_empty(value: msgspec.Raw | None) -> bool:
    """Whether a value is missing, or means the same."""
    return text_of(value) in _EMPTY
