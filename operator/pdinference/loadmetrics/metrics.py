"""The operator's own metrics on scraping and on the external metrics API.

Tests: tests/loadmetrics/test_scrape.py, tests/test_reference.py
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4)


class ScrapeMetrics:
    """Metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.scrapes = Counter(
            "pdinference_scrapes", "Reads of vLLM's metrics, by result (success, error).", ["result"], registry=registry
        )
        self.failures = Counter(
            "pdinference_scrape_failures",
            "Failed reads of vLLM's metrics, by reason (refused, unreachable, timeout, status, encoding, too-long, "
            "malformed, internal).",
            ["reason"],
            registry=registry,
        )
        self.seconds = Histogram(
            "pdinference_scrape_duration_seconds",
            "Duration of reads of vLLM's metrics.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self.silent = Gauge(
            "pdinference_silent_pods",
            "Pods that do not report the metrics that their role's autoscaler needs.",
            registry=registry,
        )
        self.queries = Counter(
            "pdinference_external_metric_queries",
            "Queries of the external metrics API, by result (answered, blind: load unknown, refused, wrong).",
            ["result"],
            registry=registry,
        )
