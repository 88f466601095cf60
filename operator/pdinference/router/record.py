"""What happened to a request: stages, pods, retries; for metrics and the access log."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from pdinference.api.names import (
    METRIC_DECODE_WAIT,
    METRIC_FALLBACK_AGE_SECONDS,
    METRIC_HANDED_OVER,
    METRIC_IDLE_SECONDS,
    METRIC_QUEUED_REQUESTS,
    Role,
)
from pdinference.router.adaptive import Choice
from pdinference.router.answer_text import AnswerText
from pdinference.router.client_tokens import ClientTokens
from pdinference.router.fair_shares import QueuePlace
from pdinference.router.room import ClientAnswers
from pdinference.router.timing import LatencyMetrics, StreamTiming
from pdinference.router.tracing import Tracer
from pdinference.router.usage import Usage
from pdinference.router.way_metrics import WayMetrics

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Overlap:
    """Counts the time in which at least one of several activities is under way. Those that overlap count once."""

    def __init__(self, seconds: Counter) -> None:
        self._seconds = seconds
        self._under_way = 0
        self._counted_until = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """One activity."""
        self.count()
        self._under_way += 1
        try:
            yield
        finally:
            self.count()
            self._under_way -= 1

    def count(self) -> None:
        """Count until now."""
        now = time.monotonic()
        if self._under_way:
            self._seconds.inc(now - self._counted_until)
        self._counted_until = now


class Metrics:
    """Metrics of the router."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "pdinference_router_requests",
            "Requests that have ended, by name of the API key, path, status and outcome.",
            ("client", "path", "status", "outcome"),
            registry=self.registry,
        )
        self.stages = Histogram(
            "pdinference_router_stage_seconds",
            "Duration of the stages of requests: queue (no pod was ready), prefill (request to P), first_token (the "
            "request to D until its first bytes: hand-over and first step), alone (the same of a request that one pod "
            "serves by choice), tokens (the rest of the answer).",
            ("stage",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.latencies = LatencyMetrics(self.registry)
        self.decode_wait = Overlap(
            Counter(
                METRIC_DECODE_WAIT.removesuffix("_total"),
                "Seconds in which at least one request to D waited for its first bytes.",
                registry=self.registry,
            )
        )
        self.handed_over = Counter(
            METRIC_HANDED_OVER.removesuffix("_total"),
            "Prompts of requests that P computed, counted before D reads them. Canaries are not counted.",
            registry=self.registry,
        )
        self.failures = Counter(
            "pdinference_router_pod_failures",
            "Requests that a pod failed, and that were sent again or ended.",
            ("role", "reason"),
            registry=self.registry,
        )
        self.poison = Counter(
            "pdinference_router_poison_requests",
            "Requests that were not sent to a further pod, because pods died while they had them.",
            registry=self.registry,
        )
        self.fallbacks = Counter(
            "pdinference_router_prefill_fallbacks",
            "Prompts that D computed because no P pod did.",
            ("reason",),
            registry=self.registry,
        )
        age = Gauge(
            METRIC_FALLBACK_AGE_SECONDS,
            "Seconds since D last computed a prompt in place of P; infinite before.",
            registry=self.registry,
        )
        age.set_function(lambda: time.monotonic() - self._last_fallback)
        self._last_fallback = -math.inf
        self.migrations = Counter(
            "pdinference_router_migrations", "Streams that went on at another D pod.", registry=self.registry
        )
        self.queued = Gauge(METRIC_QUEUED_REQUESTS, "Requests that wait for pods.", registry=self.registry)
        self.ways = WayMetrics(self.registry)
        self.client_tokens = ClientTokens(self.registry)
        self.idle = Gauge(
            METRIC_IDLE_SECONDS, "Seconds since the last request; 0 during requests.", registry=self.registry
        )

    def fell_back(self, reason: str) -> None:
        """Count a prompt that D computes in place of P."""
        self.fallbacks.labels(reason).inc()
        self._last_fallback = time.monotonic()


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Where numbers and spans go."""

    metrics: Metrics
    tracer: Tracer


@dataclass(slots=True)
class Record:
    """One request.

    Attributes:
        path: The endpoint.
        client: Name of the API key; empty without keys.
        owner: Who shares limits with other clients: the API key, else the address. Empty for the router's own requests.
        place: Its place in the queues of pods; None for the order in which requests come.
        answers: Room for whole answers to it; None for the router's own requests.
        prefill: Name of the P pod; empty if P did not compute the prompt.
        decode: Name of the D pod.
        fallback: Why D computed the prompt although the request could be split; empty if P did.
        retries: Number of failures of pods.
        migrations: Number of D pods that a stream lost.
        deaths: Number of pods that died while they had it.
        suspect: Whether it may be why an engine died.
        poison: Whether it gets no further pod, because it seems to be why they die.
        stages: Seconds of each stage.
        timing: When the tokens of a streamed answer came; None if that is not measured.
        text: The text of a streamed answer; None if it is not kept.
        choice: The way that was chosen for it; None if it had no other one.
        usage: What vLLM said of its tokens; None if that is not read.
        spent: The tokens of its answer, as far as they are known; None without an answer.
    """

    request_id: str
    telemetry: Telemetry
    path: str = ""
    client: str = ""
    owner: str = ""
    place: QueuePlace | None = None
    answers: ClientAnswers | None = None
    prefill: str = ""
    decode: str = ""
    fallback: str = ""
    retries: int = 0
    migrations: int = 0
    deaths: int = 0
    suspect: bool = False
    poison: bool = False
    stages: dict[str, float] = field(default_factory=dict)
    timing: StreamTiming | None = None
    text: AnswerText | None = None
    choice: Choice | None = None
    usage: Usage | None = None
    spent: Usage | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage; of several tries, the sum."""
        began = time.perf_counter()
        try:
            with self.telemetry.tracer.stage(name):
                yield
        finally:
            taken = time.perf_counter() - began
            self.stages[name] = self.stages.get(name, 0.0) + taken

    def failed(self, role: Role, reason: str) -> None:
        """Count a failure of a pod."""
        self.retries += 1
        self.telemetry.metrics.failures.labels(role, reason).inc()

    def migrated(self) -> None:
        """Count a stream that goes on at another D pod."""
        self.migrations += 1
        self.telemetry.metrics.migrations.inc()

    def chosen(self, choice: Choice) -> None:
        """Note the way of the request, at the last try."""
        self.choice, self.prefill, self.fallback = choice, "", ""

    def answered(self, usage: Usage) -> None:
        """Note the tokens of the complete answer."""
        self.usage = usage
        if self.choice is not None:
            self.telemetry.metrics.ways.answered(self.choice, usage)

    def count(self, usage: Usage | None, *, known: bool) -> None:
        """Count the tokens of its answer, once.

        Args:
            usage: The tokens, as far as they are known.
            known: Whether these are all.
        """
        self.spent = usage
        self.telemetry.metrics.client_tokens.count(self.client, usage, known=known)

    def prefilled(self, pod: str) -> None:
        """Note the P pod that computed the prompt, at the last try."""
        self.prefill, self.fallback = pod, ""

    def fell_back(self, reason: str) -> None:
        """Count a prompt that D computes. It does not go the way any more that was chosen for it."""
        self.choice, self.prefill, self.fallback = None, "", reason
        self.telemetry.metrics.fell_back(reason)

    def ended(self, path: str, status: int, outcome: str) -> None:
        """Count the request."""
        self.telemetry.metrics.requests.labels(self.client, path, status, outcome).inc()
        if self.choice is not None:
            first_token = None if self.timing is None else self.timing.first_token
            self.telemetry.metrics.ways.ended(self.choice, first_token)
        for name, seconds in self.stages.items():
            self.telemetry.metrics.stages.labels(name).observe(seconds)
        if self.timing is not None:
            self.timing.ended(self.telemetry.metrics.latencies, status, outcome)
