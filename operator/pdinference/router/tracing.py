"""Spans of requests, for an OpenTelemetry collector. Without an endpoint, `traceparent` only passes through."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_SERVICE = "pdinference-router"


class Tracer:
    """Makes spans.

    Args:
        provider: Where they go; None makes spans that go nowhere.
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = (provider or trace.NoOpTracerProvider()).get_tracer(_SERVICE)

    @contextmanager
    def request(self, path: str, headers: Mapping[str, str]) -> Iterator[trace.Span]:
        """The span of a request, below that of the client, if it sent one."""
        sent = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        parent = _PROPAGATOR.extract(sent)
        with self._tracer.start_as_current_span(path, parent, kind=trace.SpanKind.SERVER) as span:
            yield span

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The span of a stage, below that of the request."""
        with self._tracer.start_as_current_span(name, kind=trace.SpanKind.CLIENT):
            yield


def headers() -> dict[str, str]:
    """Headers that make the spans of vLLM children of the current span; none without one."""
    found: dict[str, str] = {}
    _PROPAGATOR.inject(found)
    return found


def exporting(endpoint: str) -> trace.TracerProvider:
    """Sends spans to a collector, in batches in a thread of its own.

    Args:
        endpoint: URL of the collector for OTLP over HTTP, with its path.
    """
    # These take time and memory that a router without a collector does not spend.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(resource=Resource.create({"service.name": _SERVICE}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    return provider
