"""Errors in the form of the API that the client uses: OpenAI's, or Anthropic's for /v1/messages.

Tests: tests/router/test_openai_client.py
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from pdinference.router.events import BOUNDARY, DATA

_ANTHROPIC: Final = "/v1/messages"
_RESPONSES: Final = "/v1/responses"
_FAULT: Final = HTTPStatus.INTERNAL_SERVER_ERROR
_OPENAI_KINDS: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
_ANTHROPIC_KINDS: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
}
_SEQUENCE_NUMBER: Final = re.compile(rb'"sequence_number": ?([0-9]{1,9})')


def problem(path: str, status: int, message: str) -> dict[str, Any]:
    """The body of an error.

    Args:
        path: The endpoint.
        status: HTTP status.
        message: What is wrong.
    """
    if path.startswith(_ANTHROPIC):
        kind = _ANTHROPIC_KINDS.get(status) or ("invalid_request_error" if status < _FAULT else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = _OPENAI_KINDS.get(status) or ("invalid_request_error" if status < _FAULT else "service_unavailable")
    return {"error": {"message": message, "type": kind, "code": int(status)}}


def error_event(path: str, status: int, message: str, latest: bytes) -> bytes:
    """The last event of a stream that breaks off.

    Args:
        path: The endpoint.
        status: What the HTTP status would be.
        message: What is wrong.
        latest: The latest events that were sent.
    """
    data = problem(path, status, message)
    name = b"event: error\n" if path in {_ANTHROPIC, _RESPONSES} else b""
    if path == _RESPONSES:
        # The documented form has these members; OpenAI's client raises an error only if there is `error`.
        numbers = _SEQUENCE_NUMBER.findall(latest)
        number = int(numbers[-1]) + 1 if numbers else 0
        data |= {"type": "error", "code": str(int(status)), "message": message, "param": None}
        data["sequence_number"] = number
    return name + DATA + msgspec.json.encode(data) + BOUNDARY
