"""Errors in the form of OpenAI's API."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

_FAULT: Final = HTTPStatus.INTERNAL_SERVER_ERROR
_KINDS: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}


def problem(status: int, message: str) -> dict[str, dict[str, str | int]]:
    """An error as the body of a response."""
    kind = _KINDS.get(status) or ("invalid_request_error" if status < _FAULT else "service_unavailable")
    return {"error": {"message": message, "type": kind, "code": int(status)}}
