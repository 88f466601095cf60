"""Reasons for which a response of a pod cannot be used.

Tests: tests/loadmetrics/test_hostile_pods.py, tests/loadmetrics/test_scrape.py
"""

from enum import StrEnum


class Reason(StrEnum):
    """Kinds of failures, used as label values of a metric."""

    REFUSED = "refused"
    """No process listens on the port."""
    UNREACHABLE = "unreachable"
    """The connection failed for another reason or was interrupted."""
    TIMEOUT = "timeout"
    """The response was not complete in time."""
    STATUS = "status"
    """An HTTP status other than 200; redirects are not followed."""
    ENCODING = "encoding"
    """The body is compressed, contrary to the request."""
    TOO_LONG = "too-long"
    """More bytes, chunks or lines than the limits allow."""
    MALFORMED = "malformed"
    """The response is not HTTP or not in Prometheus' text format."""
    INTERNAL = "internal"
    """An internal error of the operator."""


COSTLY = frozenset({Reason.TIMEOUT, Reason.TOO_LONG, Reason.ENCODING, Reason.MALFORMED, Reason.INTERNAL})
"""Failures that cost the operator time or CPU. Pods with such failures are scraped less often."""


class UnreadableError(Exception):
    """A response of a pod cannot be used.

    Args:
        reason: Reason for metrics.
        message: Message for logs, with quoted and truncated text of the pod.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
