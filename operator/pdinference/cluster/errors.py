"""Errors of requests to the API server."""

import json
from collections.abc import Mapping
from http import HTTPStatus

_TRANSIENT = frozenset({408, 409, 429, 500, 502, 503, 504})
_UNTYPED = "failed to create typed patch object"  # fits no schema; server-side apply calls it an internal error
_UNDECLARED = "field not declared in schema"
_UNSERVED = "the server could not find the requested resource"
_PLAIN_404 = "Http404"  # the text of Go's HTTP server, without a Status of Kubernetes
_RETRY_AFTER_LIMIT_S = 120.0
_TEXT_LIMIT = 500
"""Characters that are kept of a body that is no `Status`."""


class ApiError(Exception):
    """A request to the API server failed.

    Attributes:
        status: HTTP status; 0 without a response.
        reason: CamelCase reason of Kubernetes, such as `Forbidden`.
        message: Message of Kubernetes.
        retry_after: Seconds from the Retry-After header; None without one.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def transient(self) -> bool:
        """Whether a retry of the same request may succeed."""
        return self.status == 0 or (self.status in _TRANSIENT and _UNTYPED not in self.message)

    @property
    def gone_or_changed(self) -> bool:
        """Whether the object does not exist any more, or is not the one that the request was about."""
        return self.status in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}

    @property
    def unserved(self) -> bool:
        """Whether the API server does not serve the kind, such as one whose CRD is not installed."""
        return self.reason == _PLAIN_404 or (self.status == 404 and self.message == _UNSERVED)

    @property
    def undeclared(self) -> bool:
        """Whether the API server does not know a field, which its Kubernetes is too old for."""
        return self.message.endswith(_UNDECLARED)

    @classmethod
    def from_response(cls, status: int, headers: Mapping[str, str], body: bytes) -> "ApiError":
        """Create from a response: usually a Kubernetes `Status`, but any text from a proxy."""
        reason, message = _status_of(body) or ("", body.decode("utf-8", "replace")[:_TEXT_LIMIT])
        return cls(status, reason or f"Http{status}", message or f"HTTP status {status}", _retry_after(headers))

    @classmethod
    def unreachable(cls, error: BaseException) -> "ApiError":
        """Create for a request without a response: connection refused, reset or timed out."""
        return cls(0, "Unreachable", f"the API server does not answer: {error or type(error).__name__}")


def _status_of(body: bytes) -> tuple[str, str] | None:
    """Reason and message of a Kubernetes `Status`; None if the body is none."""
    try:
        details = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(details, dict):
        return None
    reason, message = details.get("reason") or "", details.get("message") or ""
    return (reason, message) if isinstance(reason, str) and isinstance(message, str) else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return min(_RETRY_AFTER_LIMIT_S, max(0.0, float(headers["Retry-After"])))
    except (KeyError, ValueError):
        return None
