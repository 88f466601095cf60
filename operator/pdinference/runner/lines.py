"""The lines of batch files, in the format of OpenAI's batch API; the names are those of vLLM's own runner.

vLLM's runner (vllm/entrypoints/launchers/run_batch.py) reads the same files, but starts an engine of its own. A body
is measured and checked, but never made into objects: its members stay bytes from the input to the service.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from pdinference.api.bounded_json import BoundedJsonError, Limits, measure

LONGEST_LINE = 16 << 20
"""Bytes. A prompt of a million tokens is 4 to 6 MiB as text, and up to 8 MiB as token ids."""
LONGEST_ANSWER = 16 << 20
LONGEST_OUTPUT_LINE = 2 * LONGEST_ANSWER
LIMITS = Limits(size=LONGEST_LINE, depth=64, values=2_000_000, members=100_000)
_REDIRECTS = 300
"""The first status that is no answer; a redirection is not followed."""
_NO = (b"false", b"null", b"0")
_NO_MODEL = (b"null", b'""')


class InvalidLineError(ValueError):
    """A line is no request; the message says why."""


class _Line(msgspec.Struct):
    custom_id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    url: Raw | UnsetType = UNSET
    body: Raw | UnsetType = UNSET


_LINE = msgspec.json.Decoder(_Line)
_ID: msgspec.json.Decoder[str] = msgspec.json.Decoder(Annotated[str, Meta(min_length=1, max_length=512)])
_METHOD: msgspec.json.Decoder[str] = msgspec.json.Decoder(Literal["POST"])
_URL: msgspec.json.Decoder[str] = msgspec.json.Decoder(Literal["/v1/chat/completions", "/v1/completions"])
_T = TypeVar("_T")
_BODY = msgspec.json.Decoder(dict[str, Raw])


@dataclass(frozen=True, slots=True)
class BatchRequestInput:
    """One line of the input.

    Attributes:
        body: Its members, as JSON.
    """

    custom_id: str
    url: str
    body: Mapping[str, Raw]

    def prepared(self, model: str | None, default_model: str | None) -> "PreparedRequest":
        """What to send; the line itself is no longer needed then.

        Args:
            model: Model of every request; None leaves each its own.
            default_model: Model of requests that name none.
        """
        body: dict[str, Any] = dict(self.body)
        chosen = model or (default_model if bytes(body.get("model", b"null")) in _NO_MODEL else None)
        payload = msgspec.json.encode({**body, "model": chosen} if chosen else body)
        return PreparedRequest(self.custom_id, self.url, payload)


class PreparedRequest(NamedTuple):
    """A request as it is sent."""

    custom_id: str
    url: str
    payload: bytes


def parsed(line: bytes) -> BatchRequestInput:
    """Read one line.

    Raises:
        InvalidLineError: It is no request.
    """
    try:
        measure(line, LIMITS)
        members = _LINE.decode(line)
    except BoundedJsonError as error:
        raise InvalidLineError(f"the line {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidLineError(f"the line is no JSON object: {error}") from None
    custom_id = _member(_ID, members.custom_id, "custom_id has to be text of 1 to 512 characters")
    if members.method is not UNSET:
        _member(_METHOD, members.method, "method has to be POST")
    url = _member(_URL, members.url, "url has to be /v1/chat/completions or /v1/completions")
    body = _member(_BODY, members.body, "body has to be an object")
    if bytes(body.get("stream", b"false")) not in _NO:
        raise InvalidLineError("body: a batch cannot stream; leave `stream` out")
    return BatchRequestInput(custom_id, url, body)


def custom_id_in(line: bytes) -> str | None:
    """The custom_id of a line that is otherwise wrong, as far as it can be read."""
    try:
        measure(line, LIMITS)
        return _member(_ID, _LINE.decode(line).custom_id, "")
    except (ValueError, RecursionError):
        return None


def _member(decoder: msgspec.json.Decoder[_T], raw: Raw | UnsetType, problem: str) -> _T:
    try:
        return decoder.decode(b"null" if raw is UNSET else raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidLineError(problem) from None


class BatchResponseData(msgspec.Struct):
    """What the service answered."""

    status_code: int
    request_id: str
    body: Any


ErrorCode = Literal["invalid_line", "timeout", "connection_error", "invalid_answer"]
"""Of requests without an answer; docs/batch.md explains each."""


class BatchRequestError(msgspec.Struct):
    """Why there is no answer."""

    code: ErrorCode
    message: str


class BatchRequestOutput(msgspec.Struct):
    """One line of output or errors.

    Attributes:
        custom_id: None for a line of the input that has none.
        line: Number of a line of the input that is no request.
    """

    id: str
    custom_id: str | None
    response: BatchResponseData | None
    error: BatchRequestError | None
    line: int | UnsetType = UNSET

    @property
    def answered(self) -> bool:
        """Whether this belongs into the output rather than among the errors."""
        return self.error is None and self.response is not None and self.response.status_code < _REDIRECTS

    def as_line(self) -> bytes:
        """The line, with its end."""
        return msgspec.json.encode(self) + b"\n"


def new_id() -> str:
    """Identity of an output line."""
    return f"batch_req_{uuid.uuid4().hex}"
