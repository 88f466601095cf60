"""Why an answer of a pod cannot be used."""

from enum import StrEnum


class Reason(StrEnum):
    """Kinds of failures; the label of a metric, so there are few."""

    REFUSED = "refused"
    """No process listens on the port."""
    UNREACHABLE = "unreachable"
    """The connection failed in another way, or broke."""
    TIMEOUT = "timeout"
    """The answer was not complete in time."""
    STATUS = "status"
    """An HTTP status other than 200; redirects are not followed."""
    ENCODING = "encoding"
    """A compressed body, although none was asked for."""
    TOO_LONG = "too-long"
    """More bytes, chunks or lines than the limits allow."""
    MALFORMED = "malformed"
    """Not HTTP, or not Prometheus' text format."""
    INTERNAL = "internal"
    """A fault of the operator itself."""


COSTLY = frozenset({Reason.TIMEOUT, Reason.TOO_LONG, Reason.ENCODING, Reason.MALFORMED, Reason.INTERNAL})
"""Failures of pods that answer, but not as they should. Such pods are read less often."""


class UnreadableError(Exception):
    """An answer of a pod cannot be used.

    Args:
        reason: For metrics.
        message: For logs. What a pod wrote is quoted and cut.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
