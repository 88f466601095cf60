"""Which ways requests went, from the metrics of routers (`router.disaggregation: Adaptive`): pure.

Tests: tests/cli/test_status_ways.py
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pdinference.api.names import (
    METRIC_CACHED_PROMPT_TOKENS,
    METRIC_WAY_ERROR_SECONDS,
    METRIC_WAY_MEASURED_SECONDS,
    METRIC_WAY_PREDICTED_SECONDS,
    METRIC_WAYS,
)
from pdinference.loadmetrics.scraping.http_answer import LONGEST_LINE
from pdinference.loadmetrics.scraping.text_format import Sample, name_of, sample

_READ: Final = frozenset(
    name.encode()
    for name in (
        METRIC_CACHED_PROMPT_TOKENS,
        METRIC_WAY_ERROR_SECONDS,
        METRIC_WAY_MEASURED_SECONDS,
        METRIC_WAY_PREDICTED_SECONDS,
        METRIC_WAYS,
    )
)
_MOST_SERIES: Final = 1000


@dataclass(frozen=True, slots=True)
class WayUse:
    """What became of the requests since the routers started.

    Attributes:
        requests: By way.
        reasons: Requests by reason.
        predicted_seconds, measured_seconds: Until the first token, in all, of streamed answers with a prediction.
        error_seconds: Sum of the differences of the two by request.
        prompt_tokens: Of the requests that one pod served.
        expected_cached_tokens, cached_tokens: Those of them that should have been in the pod's cache, and that were.
    """

    requests: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, float] = field(default_factory=dict)
    predicted_seconds: float = 0.0
    measured_seconds: float = 0.0
    error_seconds: float = 0.0
    prompt_tokens: float = 0.0
    expected_cached_tokens: float = 0.0
    cached_tokens: float = 0.0


def way_use(pages: Iterable[bytes]) -> WayUse:
    """Add up the metrics of routers.

    Raises:
        UnreadableError: A page is malformed.
    """
    samples = [one for page in pages for one in _samples(page)]
    cached = _by(samples, METRIC_CACHED_PROMPT_TOKENS, "kind")
    return WayUse(
        requests=_by(samples, METRIC_WAYS, "way"),
        reasons=_by(samples, METRIC_WAYS, "reason"),
        predicted_seconds=_sum(samples, METRIC_WAY_PREDICTED_SECONDS),
        measured_seconds=_sum(samples, METRIC_WAY_MEASURED_SECONDS),
        error_seconds=_sum(samples, METRIC_WAY_ERROR_SECONDS),
        prompt_tokens=cached.get("prompt", 0.0),
        expected_cached_tokens=cached.get("expected", 0.0),
        cached_tokens=cached.get("actual", 0.0),
    )


def _samples(page: bytes) -> list[Sample]:
    lines = (line for line in page.split(b"\n") if len(line) <= LONGEST_LINE and name_of(line) in _READ)
    return [one for one in map(sample, lines) if one.value > 0][:_MOST_SERIES]


def _sum(samples: Iterable[Sample], name: str) -> float:
    return sum(one.value for one in samples if one.name == name.encode())


def _by(samples: Iterable[Sample], name: str, label: str) -> Mapping[str, float]:
    found = defaultdict[str, float](float)
    for one in samples:
        if one.name == name.encode():
            found[one.labels.get(label.encode(), b"").decode(errors="replace")] += one.value
    return found
