"""Reads responses of the service within the memory limits. Bodies stay JSON and are not parsed into objects.

Tests: tests/runner/test_sending.py, tests/runner/test_hostile_run.py
"""

from typing import Any

import aiohttp
import msgspec

from pdinference.api.bounded_json import JsonLimits, measure
from pdinference.api.plain_text import plain
from pdinference.runner.lines import (
    LONGEST_ANSWER,
    BatchRequestError,
    BatchRequestOutput,
    BatchResponseData,
    ErrorCode,
    PreparedRequest,
    new_id,
)
from pdinference.runner.room import SMALL, Share

_LIMITS = JsonLimits(size=LONGEST_ANSWER, depth=128, values=LONGEST_ANSWER, members=LONGEST_ANSWER)
"""Limits of a response. Responses with many log probabilities have millions of values, but no objects are created."""
_LONGEST_TEXT = 2000
_LONGEST_ID = 256
_OK = 200
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
"""Headers of each request. A compressed response could expand to a thousand times its size."""


class InvalidAnswerError(ValueError):
    """A response that cannot be stored. The message states the reason."""


async def answered(request: PreparedRequest, answer: aiohttp.ClientResponse, share: Share) -> BatchRequestOutput:
    """The output line for a response.

    Raises:
        InvalidAnswerError: The response is too large, or is successful but not JSON.
    """
    body = await (_whole(answer, share) if answer.status == _OK else _error(answer))
    request_id = answer.headers.get("X-Request-Id") or _id_in(body) or new_id()
    response = BatchResponseData(status_code=answer.status, request_id=plain(request_id, _LONGEST_ID), body=body)
    return BatchRequestOutput(id=new_id(), custom_id=request.custom_id, response=response, error=None)


def failed(custom_id: str | None, code: ErrorCode, message: str) -> BatchRequestOutput:
    """The output line for a request without a response."""
    error = BatchRequestError(code=code, message=plain(message, _LONGEST_TEXT))
    return BatchRequestOutput(id=new_id(), custom_id=custom_id, response=None, error=error)


async def _whole(answer: aiohttp.ClientResponse, share: Share) -> msgspec.Raw:
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise InvalidAnswerError("the response is compressed, although the request does not accept this")
    body = await _read(answer, SMALL + 1)
    if len(body) <= SMALL:
        return _compact(bytes(body))
    await share.enlarge()
    try:
        return await _large(answer, body)
    except BaseException:
        share.shrink()  # while this request waits for another try, others may have large responses
        raise


async def _large(answer: aiohttp.ClientResponse, body: bytearray) -> msgspec.Raw:
    """A large body that has begun."""
    body += await _read(answer, LONGEST_ANSWER + 1 - len(body))
    if len(body) > LONGEST_ANSWER:
        raise InvalidAnswerError(f"the answer is larger than {LONGEST_ANSWER:,} bytes")
    return _compact(bytes(body))


async def _error(answer: aiohttp.ClientResponse) -> Any:
    """The body of an error: JSON from vLLM, or plain text from a proxy."""
    body = bytes(await _read(answer, SMALL))
    try:
        return _compact(body)
    except InvalidAnswerError:
        return {"error": {"message": plain(body.decode(errors="replace"), _LONGEST_TEXT)}}


def _compact(body: bytes) -> msgspec.Raw:
    """JSON without line breaks."""
    try:
        measure(body, _LIMITS)
        return msgspec.Raw(msgspec.json.format(body, indent=-1))
    except (ValueError, RecursionError) as error:
        raise InvalidAnswerError(f"the answer is not JSON: {error}") from None


async def _read(answer: aiohttp.ClientResponse, most: int) -> bytearray:
    """Read up to `most` bytes of a body."""
    read = bytearray()
    while len(read) < most and (piece := await answer.content.read(min(most - len(read), SMALL))):
        read += piece
    return read


class _Named(msgspec.Struct):
    id: str = ""


def _id_in(body: Any) -> str:
    if not isinstance(body, msgspec.Raw):
        return ""
    try:
        return msgspec.json.decode(body, type=_Named).id
    except (msgspec.DecodeError, RecursionError):
        return ""
