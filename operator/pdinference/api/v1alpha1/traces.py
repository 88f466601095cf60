"""`spec.traces`: where the spans of the router and of vLLM go.

Tests: tests/engine/test_traces.py, e2e/test_traces.py
"""

from typing import Annotated, Final

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Matches

OPTION: Final = "otlp-traces-endpoint"
"""The option of vLLM."""


class Traces(ApiModel):
    """Spans of requests, for an OpenTelemetry collector."""

    endpoint: Annotated[
        str,
        Field(max_length=300),
        Matches(
            r"^https?://[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[1-9][0-9]{0,4})?(/[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,63}){1,8}$",
            "Write the URL for OTLP over HTTP with its path: http://otel-collector.monitoring:4318/v1/traces.",
        ),
    ]
    """URL for OTLP over HTTP, with its path, for example `http://otel-collector.monitoring:4318/v1/traces`."""
