"""Which headers and statuses pass the router. All others end at it."""

from http import HTTPStatus
from typing import Final

from multidict import CIMultiDict, MultiMapping

_TO_PODS: Final = ("Traceparent", "Tracestate", "X-Session-Id")
"""Headers of clients that vLLM may read, beside the content type and the request id, which the router writes.

Others choose a rank of the engine (`X-data-parallel-rank`), its order of requests (`X-Vllm-Priority`), or ask for its
load (`endpoint-load-metrics-format`).
"""
_LONGEST_TO_PODS: Final = 1024
_TO_CLIENTS: Final = ("Content-Type", "Metadata", "Retry-After")
"""`Metadata` describes embeddings in bytes (vllm/entrypoints/pooling/utils.py)."""

_REFUSALS: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
_FAULTS: Final = range(500, 505)


def is_answer(status: int) -> bool:
    """Whether a pod may answer with a status: as an answer, a refusal, or an error of its own."""
    return status == HTTPStatus.OK or status in _REFUSALS or status in _FAULTS


def to_pods(headers: MultiMapping[str]) -> CIMultiDict[str]:
    """The headers of a request of a client that go to pods."""
    found = ((name, headers[name]) for name in _TO_PODS if name in headers)
    return CIMultiDict((name, value) for name, value in found if _is_plain(value) and len(value) <= _LONGEST_TO_PODS)


def to_clients(headers: MultiMapping[str]) -> CIMultiDict[str]:
    """The headers of a response of a pod that go to clients."""
    return CIMultiDict((name, headers[name]) for name in _TO_CLIENTS if name in headers and _is_plain(headers[name]))


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()
