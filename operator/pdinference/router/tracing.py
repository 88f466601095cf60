"""Spans of requests, for an OpenTelemetry collector. Without an endpoint, `traceparent` only passes through."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_SERVICE = "pdinference-router"


class Tracer:
    """Makes spans.

    Args:
        provider: Where they go; None makes none. (The library's spans that go nowhere take a tenth of a request's CPU.)
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = None if provider is None else provider.get_tracer(_SERVICE)

    def request(self, path: str, headers: Mapping[str, str]) -> AbstractContextManager[trace.Span]:
        """The span of a request, below that of the client, if it sent one."""
        if self._tracer is None:
            return nullcontext(trace.INVALID_SPAN)
        sent = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        parent = _PROPAGATOR.extract(sent)
        return self._tracer.start_as_current_span(path, parent, kind=trace.SpanKind.SERVER)

    def stage(self, name: str) -> AbstractContextManager[trace.Span]:
        """The span of a stage, below that of the request."""
        if self._tracer is None:
            return nullcontext(trace.INVALID_SPAN)
        return self._tracer.start_as_current_span(name, kind=trace.SpanKind.CLIENT)


def headers() -> dict[str, str]:
    """Headers that make the spans of vLLM children of the current span; none without one."""
    found: dict[str, str] = {}
    if trace.get_current_span() is not trace.INVALID_SPAN:
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
