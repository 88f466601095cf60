"""Refusals of the API server, sorted by what to do about them."""

import json
from collections.abc import Mapping

_TRANSIENT = frozenset({408, 409, 429, 500, 502, 503, 504})
_UNTYPED = "failed to create typed patch object"  # fits no schema; server-side apply calls it an internal error
_RETRY_AFTER_LIMIT_S = 120.0


class ApiError(Exception):
    """The API server answered with an error, or not at all.

    Attributes:
        status: HTTP status; 0 when there was no answer.
        reason: Kubernetes' CamelCase reason, such as `Forbidden`.
        message: Kubernetes' own words.
        retry_after: Seconds that the server asked to wait; None when it did not say.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def transient(self) -> bool:
        """The same request may well succeed later, with nobody doing anything."""
        return self.status == 0 or (self.status in _TRANSIENT and _UNTYPED not in self.message)

    @classmethod
    def from_response(cls, status: int, headers: Mapping[str, str], body: bytes) -> "ApiError":
        """From an answer that is usually a Kubernetes `Status`, and any text when a proxy stands between."""
        try:
            details = json.loads(body)
            reason, message = details.get("reason") or "", details.get("message") or ""
        except (ValueError, AttributeError):
            reason, message = "", body.decode("utf-8", "replace")[:500]
        return cls(status, reason or f"Http{status}", message or f"HTTP status {status}", _retry_after(headers))

    @classmethod
    def unreachable(cls, error: BaseException) -> "ApiError":
        """No answer: connection refused, reset, timed out."""
        return cls(0, "Unreachable", f"the API server does not answer: {error or type(error).__name__}")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return min(_RETRY_AFTER_LIMIT_S, max(0.0, float(headers["Retry-After"])))
    except (KeyError, ValueError):
        return None
