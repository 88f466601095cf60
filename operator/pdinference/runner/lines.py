"""Lines of batch files, in the format of OpenAI's batch API. The class names are those of vLLM's batch runner.

vLLM's runner (vllm/entrypoints/launchers/run_batch.py) reads the same files, but starts its own engine. The body of a
request is validated within limits, but not parsed into objects: its members are forwarded as bytes.

Tests: tests/runner/test_hostile_lines.py, tests/runner/test_documented_lines.py, tests/runner/test_sending.py
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, measure

LONGEST_LINE = 16 << 20
"""Maximum length of a line in bytes. A prompt of a million tokens has 4 to 6 MiB as text, and 8 MiB as token ids."""
LONGEST_ANSWER = 16 << 20
LONGEST_OUTPUT_LINE = 2 * LONGEST_ANSWER
LIMITS = JsonLimits(size=LONGEST_LINE, depth=64, values=2_000_000, members=100_000)
_REDIRECTS = 300
"""The lowest HTTP status that is not a success. Redirects are not followed."""
_NO = (b"false", b"null", b"0")
_NO_MODEL = (b"null", b'""')


class InvalidLineError(ValueError):
    """A line is not a request. The message states the reason."""


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
        body: Members of the body, each as JSON.
    """

    custom_id: str
    url: str
    body: Mapping[str, Raw]

    def prepared(self, model: str | None, default_model: str | None) -> "PreparedRequest":
        """The request to send. The line itself is not needed afterwards.

        Args:
            model: Model for every request; None for the model of each line.
            default_model: Model of requests without one.
        """
        body: dict[str, Any] = dict(self.body)
        chosen = model or (default_model if bytes(body.get("model", b"null")) in _NO_MODEL else None)
        payload = msgspec.json.encode({**body, "model": chosen} if chosen else body)
        return PreparedRequest(self.custom_id, self.url, payload)


class PreparedRequest(NamedTuple):
    """A request in the form that is sent."""

    custom_id: str
    url: str
    payload: bytes


def parsed(line: bytes) -> BatchRequestInput:
    """Read one line.

    Raises:
        InvalidLineError: It is not a request.
    """
    try:
        measure(line, LIMITS)
        members = _LINE.decode(line)
    except BoundedJsonError as error:
        raise InvalidLineError(f"the line {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidLineError(f"the line is not a JSON object: {error}") from None
    custom_id = _member(_ID, members.custom_id, "custom_id must be a string of 1 to 512 characters")
    if members.method is not UNSET:
        _member(_METHOD, members.method, "method must be POST")
    url = _member(_URL, members.url, "url must be /v1/chat/completions or /v1/completions")
    body = _member(_BODY, members.body, "body must be an object")
    if bytes(body.get("stream", b"false")) not in _NO:
        raise InvalidLineError("body: a batch cannot stream; leave `stream` out")
    return BatchRequestInput(custom_id, url, body)


def custom_id_in(line: bytes) -> str | None:
    """The custom_id of an invalid line; None if it cannot be read."""
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
    """The response of the service."""

    status_code: int
    request_id: str
    body: Any


ErrorCode = Literal["invalid_line", "timeout", "connection_error", "invalid_answer", "service_stopped"]
"""Error codes of requests without a response, as in docs/batch.md."""


class BatchRequestError(msgspec.Struct):
    """The reason why there is no response."""

    code: ErrorCode
    message: str


class BatchRequestOutput(msgspec.Struct):
    """One line of the output or of the errors.

    Attributes:
        custom_id: The custom_id of the request; None if the input line has none.
        line: Number of an input line that is not a request.
    """

    id: str
    custom_id: str | None
    response: BatchResponseData | None
    error: BatchRequestError | None
    line: int | UnsetType = UNSET

    @property
    def answered(self) -> bool:
        """Whether this is a line of the output, not of the errors."""
        return self.error is None and self.response is not None and self.response.status_code < _REDIRECTS

    def as_line(self) -> bytes:
        """The line with a line break."""
        return msgspec.json.encode(self) + b"\n"


def new_id() -> str:
    """A random id for an output line."""
    return f"batch_req_{uuid.uuid4().hex}"
