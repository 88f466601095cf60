"""Why a pod did not answer a request.

Tests: tests/router/test_failures.py, tests/router/test_broken_answers.py
"""

from enum import StrEnum


class FailureReason(StrEnum):
    """Why; the label `reason` of metrics."""

    REFUSED = "refused"
    """It accepted no connection."""
    DISCONNECTED = "disconnected"
    """The connection broke."""
    DELETED = "deleted"
    """The pod is gone."""
    HUNG = "hung"
    """Its server does not answer /health."""
    STALLED = "stalled"
    """Its engine takes no step."""
    ENGINE_DIED = "engine_died"
    """Its server said so."""
    NO_KV_CACHE = "kv_cache"
    """The KV cache of the prompt does not come from P."""
    ABORTED = "aborted"
    """vLLM ended the request, although no client left."""
    STATUS = "status"
    """An HTTP status that another pod may answer better. The label has its number."""
    ERROR_EVENT = "error_event"
    """The stream begins with an error."""
    EMPTY_STREAM = "empty_stream"
    """The stream ended before it began."""
    UNEXPECTED_STREAM = "unexpected_stream"
    """A stream came in place of a whole answer."""
    UNFRAMED_ANSWER = "unframed_answer"
    """Nothing says where the answer ends."""
    ANSWER_TOO_LARGE = "answer_too_large"
    MALFORMED_ANSWER = "malformed_answer"
    STREAM_FROM_PREFILL = "stream_from_prefill"
    WRONG_HANDOVER = "wrong_handover"
    """What P says of the KV cache cannot be handed to D."""
    NO_BOOTSTRAP_SERVER = "no_bootstrap_server"
    """P's bootstrap server does not say which engine there is."""


FAILURES_OF_SERVER = frozenset({FailureReason.DISCONNECTED, FailureReason.ENGINE_DIED, FailureReason.EMPTY_STREAM})
"""What one rank of a vLLM fails with and the others may too: its process ends with all of them."""
