"""Metrics of the ways of requests: how many, and how right the predictions were.

Tests: tests/router/test_adaptive.py
"""

from prometheus_client import CollectorRegistry, Counter

from pdinference.api.names import (
    METRIC_ALONE_PROMPT_TOKENS,
    METRIC_CACHED_PROMPT_TOKENS,
    METRIC_WAY_ERROR_SECONDS,
    METRIC_WAY_MEASURED_SECONDS,
    METRIC_WAY_PREDICTED_SECONDS,
    METRIC_WAYS,
    KvSource,
)
from pdinference.router.adaptive import Choice
from pdinference.router.usage import Usage
from pdinference.router.ways import Way


class WayMetrics:
    """The metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            METRIC_WAYS.removesuffix("_total"),
            "Requests by way (split, decode, parameter) and reason: it costs least (cost), it keeps more of "
            "spec.objectives (objectives), or the router knows too little of its pods yet (learning).",
            ("way", "reason"),
            registry=registry,
        )
        self._first_tokens = Counter(
            "pdinference_router_way_first_tokens",
            "Streamed answers whose time to the first token was predicted.",
            ("way",),
            registry=registry,
        )
        self._predicted = Counter(
            METRIC_WAY_PREDICTED_SECONDS.removesuffix("_total"),
            "Sum of their predicted times to the first token.",
            ("way",),
            registry=registry,
        )
        self._measured = Counter(
            METRIC_WAY_MEASURED_SECONDS.removesuffix("_total"),
            "Sum of the times that they took.",
            ("way",),
            registry=registry,
        )
        self._error = Counter(
            METRIC_WAY_ERROR_SECONDS.removesuffix("_total"),
            "Sum of the differences of the two by request.",
            ("way",),
            registry=registry,
        )
        self._cached = Counter(
            METRIC_CACHED_PROMPT_TOKENS.removesuffix("_total"),
            "Prompt tokens of the requests that one pod served: all (prompt), those that the router expected in the "
            "pod's cache (expected), and those that were there by what vLLM says (actual).",
            ("kind",),
            registry=registry,
        )
        self._cache_error = Counter(
            "pdinference_router_cached_prompt_error_tokens",
            "Sum of the differences of the two by request.",
            registry=registry,
        )
        self._alone = Counter(
            METRIC_ALONE_PROMPT_TOKENS.removesuffix("_total"),
            "Estimate of the prompt tokens of the requests that D serves alone by choice, by source: D computed them "
            "(decode), or had them in its cache (cache). Counted with the first token.",
            ("source",),
            registry=registry,
        )

    def began(self, choice: Choice) -> None:
        """Count the prompt of a request whose first token has come, if D serves it alone.

        Not at the end, when vLLM says the number: D's own counters have it since the prompt was computed.
        """
        if choice.predicted.way is Way.DECODE:
            self._alone.labels(KvSource.DECODE).inc(choice.predicted.uncached)
            self._alone.labels(KvSource.CACHE).inc(choice.expected)

    def answered(self, choice: Choice, usage: Usage) -> None:
        """Count the tokens of a complete answer."""
        if choice.is_alone and usage.cached is not None:
            self._cached.labels("prompt").inc(usage.prompt)
            self._cached.labels("expected").inc(choice.expected)
            self._cached.labels("actual").inc(usage.cached)
            self._cache_error.inc(abs(choice.expected - usage.cached))

    def ended(self, choice: Choice, first_token: float | None) -> None:
        """Count a request.

        Args:
            choice: Its way.
            first_token: Seconds until its first token; None if that was not measured.
        """
        way = choice.predicted.way
        self._requests.labels(way, choice.reason).inc()
        if first_token is not None and not choice.learning:
            self._first_tokens.labels(way).inc()
            self._predicted.labels(way).inc(choice.predicted.first_token)
            self._measured.labels(way).inc(first_token)
            self._error.labels(way).inc(abs(choice.predicted.first_token - first_token))
