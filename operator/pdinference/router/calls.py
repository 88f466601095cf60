"""What clients may call, and what a request means for P and D."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

import msgspec
from multidict import CIMultiDict

from pdinference.engine.connectors.handover import MEMBER, TransferParams
from pdinference.router.untrusted import NotJsonError, decoded

REQUEST_ID: Final = "X-Request-Id"
_ID_IN_BODY: Final = "/v1/responses"
_BYTES_PER_TOKEN: Final = 4
"""Of English text in UTF-8. Loads of P are compared with each other, so only the ratio of two prompts matters."""


POST: Final[Mapping[str, tuple[str, ...]]] = {
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
    "/v1/messages": ("max_tokens",),
    **dict.fromkeys(
        (
            "/v1/messages/count_tokens",
            "/v1/embeddings",
            "/v1/audio/transcriptions",
            "/v1/audio/translations",
            "/v1/score",
            "/v1/rerank",
            "/v2/rerank",
            "/score",
            "/rerank",
            "/classify",
            "/pooling",
            "/tokenize",
            "/detokenize",
        ),
        (),
    ),
}
"""Endpoints of requests with a body, and the members that limit the number of generated tokens. With such members, a
request is split into prefill and decode; without them, D answers alone. All other endpoints, such as those that load
adapters or profile, are refused."""
GET: Final = frozenset({"/v1/models", "/version"})

_NOT_FOR_CLIENTS: Final = (MEMBER, "ec_transfer_params")
"""With these, a client could make D read KV cache or encoder outputs from any address."""

# A hand-over carries the KV cache of one sequence, with all of its prompt tokens computed in the usual way.
_ONE: Final = ("n", "best_of")
_NOT_SPLIT: Final = ("previous_response_id", "background", "use_beam_search", "prompt_logprobs", "echo")
STREAM_OPTIONS: Final = "stream_options"
_NOT_FOR_PREFILL: Final = (STREAM_OPTIONS, "min_tokens", "logprobs", "top_logprobs", "background", *_ONE)

_EMPTY: Final = (None, b"null", b"false", b"0", b"0.0", b'""', b"[]", b"{}")
_ONE_PROMPT: Final = re.compile(rb'"|\[\s*-?[0-9]')
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
        headers: Headers for vLLM.
        session: Key of the session; empty without one.
        stream_options: Options of the stream for D, in place of those of the client; None to leave them.
        found: What `members` gives; None before the body has been read, which takes 60 ms for 16 MiB.
    """

    path: str
    body: bytes
    json: bool = False
    split: bool = False
    stream: bool = False
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    session: str = ""
    stream_options: Mapping[str, Any] | None = None
    found: dict[str, msgspec.Raw] | None = field(default=None, repr=False)

    @property
    def tokens(self) -> int:
        """Estimate of the number of prompt tokens, for the load of P."""
        return 1 + len(self.body) // _BYTES_PER_TOKEN

    def members(self) -> dict[str, msgspec.Raw]:
        """The members of the body, whose values are not decoded, without `_NOT_FOR_CLIENTS`.

        Raises:
            NotJsonError: It is not an object.
        """
        if self.found is not None:
            return self.found.copy()
        members: dict[str, msgspec.Raw] = decoded(self.body, dict[str, msgspec.Raw])
        for name in _NOT_FOR_CLIENTS:
            members.pop(name, None)
        return members

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
        for name, value in more.items():
            members.pop(name, None)
            if value is not None:
                members[name] = value
        return msgspec.json.encode(members | ({} if params is None else {MEMBER: params}))

    def for_decode(self, params: TransferParams | None) -> bytes:
        """The body for D."""
        if not self.json:
            return self.body
        members: dict[str, Any] = {**self.members(), **({} if params is None else {MEMBER: params})}
        if self.stream_options is not None:
            members[STREAM_OPTIONS] = self.stream_options
        return msgspec.json.encode(members)

    def with_request_id(self, request_id: str) -> "Call":
        """The same call under another request id. vLLM takes it from the header, or for one endpoint from the body."""
        headers = self.headers.copy()
        headers[REQUEST_ID] = request_id
        call = replace(self, headers=headers)
        if self.path != _ID_IN_BODY:
            return call
        return call.changed({**self.members(), "request_id": f"resp_{request_id}"})

    def changed(self, members: Mapping[str, Any]) -> "Call":
        """The same call with these members, and no others."""
        return replace(self, body=msgspec.json.encode(members), found=None)


def takes_json(path: str, content_type: str) -> bool:
    """Whether the body of a request has to be JSON. Audio comes as a form."""
    return bool(POST[path]) or content_type == "application/json"


def read_call(path: str, body: bytes, content_type: str, headers: CIMultiDict[str], session: str = "") -> Call:
    """Read the body of a request to one of the endpoints in `POST`, after `check_text` if it takes JSON.

    Raises:
        MalformedError: The endpoint takes JSON, and the body has none.
    """
    limits = POST[path]
    call = Call(path, body, headers=headers, session=session)
    if not takes_json(path, content_type):
        return call
    try:
        members = call.members()
    except NotJsonError as error:
        raise MalformedError(f"The body is not a JSON object: {error}") from None
    if len(members) > _MOST_MEMBERS or any(len(name) > _LONGEST_NAME for name in members):
        raise MalformedError(f"The body has more than {_MOST_MEMBERS} members, or one with a very long name.")
    split = bool(limits) and _one_sequence(members)
    return replace(call, json=True, split=split, stream=text_of(members.get("stream")) == b"true", found=members)


def text_of(value: msgspec.Raw | None) -> bytes | None:
    """A value as it came; None if there is none."""
    return None if value is None else bytes(value)


def _one_sequence(members: Mapping[str, msgspec.Raw]) -> bool:
    """Whether the request has one prompt and one answer, so that one hand-over serves it."""
    if any(text_of(members.get(name)) not in (None, b"null", b"1") for name in _ONE):
        return False
    if not all(is_empty(members.get(name)) for name in _NOT_SPLIT):
        return False
    prompt = members.get("prompt")
    return prompt is None or _ONE_PROMPT.match(memoryview(prompt)) is not None


def is_empty(value: msgspec.Raw | None) -> bool:
    """Whether a value is missing, or means the same."""
    return text_of(value) in _EMPTY
