"""What makes vLLM export spans, below those of the router (vllm/tracing/otel.py).

Tests: tests/engine/test_traces.py
"""

from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference, Spec
from pdinference.api.v1alpha1.traces import OPTION
from pdinference.engine.command import EnvironmentVariable, variable


def traces_options(spec: Spec) -> dict[str, Any]:
    """vLLM's option with the collector."""
    return {OPTION: spec.traces.endpoint} if spec.traces else {}


def traces_environment(resource: PDInference, role: Role) -> list[EnvironmentVariable]:
    """The protocol, for which vLLM's default is gRPC, and a name that tells P and D apart."""
    if resource.spec.traces is None:
        return []
    return [
        variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        variable("OTEL_SERVICE_NAME", f"{resource.metadata.name}-{role}"),
    ]
