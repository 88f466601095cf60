"""Latencies of streamed answers, as their clients wait for them: time to first token, time per output token.

The number of tokens is the one that vLLM reports at the end of a stream. Events do not show it: one has several tokens
while D's API server is behind (measured: 1.65), and with speculative decoding. If the client did not ask for the
report, the router does, and takes it out of the stream (vllm/entrypoints/openai/chat_completion/serving.py).
"""

import re
import time
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from pdinference.api import latencies
from pdinference.router.calls import Call
from pdinference.router.usage import MAYBE_TOKENS, Usage, usage_in

_MEASURED: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages"})
"""Endpoints whose first event comes with the first token. /v1/responses sends events before it."""
_REPORTS: Final = "/v1/messages"
"""Endpoint whose streams always have the number of tokens."""
_INCLUDE: Final = "include_usage"

# A text cannot contain these bytes: its quotes are escaped.
_NO_CHOICES: Final = re.compile(rb'"choices": ?\[\]')
_FINGERPRINT: Final = re.compile(rb',"system_fingerprint":"[^"\\]*"')
_FINISHED: Final = b'"finish_reason":"'
_BOUNDARY: Final = b"\n\n"


class LatencyMetrics:
    """Histograms of the latencies."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.first_token = Histogram(
            latencies.FIRST_TOKEN,
            "Time from the request to the first token of a streamed answer.",
            buckets=latencies.FIRST_TOKEN_BOUNDS,
            registry=registry,
        )
        self.output_token = Histogram(
            latencies.OUTPUT_TOKEN,
            "Mean time per output token of a complete streamed answer, after its first token.",
            buckets=latencies.OUTPUT_TOKEN_BOUNDS,
            registry=registry,
        )
        self.abandoned = Histogram(
            latencies.ABANDONED,
            "Time after which a client left before the first token of a streamed answer.",
            buckets=latencies.ABANDONED_BOUNDS,
            registry=registry,
        )
        self.failed = Counter(
            latencies.FAILED.removesuffix("_total"),
            "Requests for a streamed answer that failed before its first token, not by a fault of the client.",
            registry=registry,
        )


class StreamTiming:
    """When the tokens of one streamed answer came.

    Args:
        hides_report: Whether the report of the number of tokens is only for the router.
        is_measured: Whether its latencies count.

    Attributes:
        usage: The report; None before it came.
    """

    def __init__(self, *, hides_report: bool = False, is_measured: bool = True) -> None:
        self._hides_report = hides_report
        self._is_measured = is_measured
        self._began = time.perf_counter()
        self._first: float | None = None
        self._last = 0.0
        self.usage: Usage | None = None
        self._final = b""

    @property
    def first_token(self) -> float | None:
        """Seconds until the first token; None before."""
        return None if self._first is None else self._first - self._began

    @property
    def seconds_per_token(self) -> float | None:
        """Seconds for each token after the first, once their number is known; None without any."""
        if self._first is None or self.usage is None or self.usage.answer < 2:
            return None
        return (self._last - self._first) / (self.usage.answer - 1)

    def came(self) -> None:
        """Note that something of the answer came."""
        self._last = time.perf_counter()
        if self._first is None:
            self._first = self._last

    def take(self, events: bytes) -> bytes:
        """The events for the client.

        Args:
            events: Whole events, as they came.
        """
        if MAYBE_TOKENS in events:
            self.usage = usage_in(events) or self.usage
        if not self._hides_report or not (self._final or MAYBE_TOKENS in events or _FINISHED in events):
            return events
        return b"".join(self._without_report(event) for event in events.split(_BOUNDARY) if event)

    def left(self) -> bytes:
        """What is left for the client when no more events come."""
        final, self._final = self._final, b""
        return final

    def _without_report(self, event: bytes) -> bytes:
        """What a client that did not ask for the report gets of an event.

        vLLM writes `system_fingerprint` into the last event, which is the report instead of the final chunk.
        """
        if MAYBE_TOKENS in event and _NO_CHOICES.search(event):
            final, fingerprint = self.left(), _FINGERPRINT.search(event)
            if not final.endswith(b"}" + _BOUNDARY) or fingerprint is None:
                return final
            return final.removesuffix(b"}" + _BOUNDARY) + fingerprint[0] + b"}" + _BOUNDARY
        before = self.left()
        if _FINISHED in event:
            self._final = event + _BOUNDARY
            return before
        return before + event + _BOUNDARY

    def ended(self, metrics: LatencyMetrics, status: int, outcome: str) -> None:
        """Count the answer.

        Args:
            metrics: Where to.
            status: Status of the response.
            outcome: How the request ended: `answered`, `cut`, `cancelled` or another word for a request without answer.
        """
        if not self._is_measured:
            return
        if (first_token := self.first_token) is not None:
            metrics.first_token.observe(first_token)
            if outcome == "answered" and (seconds := self.seconds_per_token) is not None:
                metrics.output_token.observe(seconds)
        elif outcome == "cancelled":
            metrics.abandoned.observe(time.perf_counter() - self._began)
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            metrics.failed.inc()


def timed(call: Call) -> tuple[Call, StreamTiming | None]:
    """A call that begins now, whose stream ends with the number of tokens; no timing without such a stream.

    Latencies count if it is for one answer to one prompt.
    """
    if not (call.stream and call.is_understood and call.path in _MEASURED):
        return call, None
    if call.path == _REPORTS or call.wants_usage:
        return call, StreamTiming(is_measured=call.split)
    hiding = StreamTiming(hides_report=True, is_measured=call.split)
    return replace(call, stream_options={_INCLUDE: True}), hiding  # others had no effect
