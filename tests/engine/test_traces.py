"""Spans of the router, P and D: options and variables, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import examine
from pdinference.engine.compile_cache import compile_cache_key
from pdinference.engine.router import router_command
from pdinference.engine.vllm import engine_command
from pdinference.manifests import RenderSettings

Json = dict[str, Any]
Make = Callable[..., Json]
URL = "http://otel-collector.monitoring:4318/v1/traces"
OF_THE_CHART = "http://other:4318/v1/traces"


def parsed(document: Make, **spec: Any) -> PDInference:
    return PDInference.model_validate(document(**spec))


def test_all_three_export_to_the_collector(document: Make) -> None:
    resource = parsed(document, traces={"endpoint": URL})
    for role in (Role.PARAMETER, Role.DECODE):
        command = engine_command(resource, role)
        assert f"--otlp-traces-endpoint={URL}" in command.arguments
        found = {entry["name"]: entry.get("value") for entry in command.environment}
        assert found["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf"
        assert found["OTEL_SERVICE_NAME"] == f"{resource.metadata.name}-{role}"
    assert f"--otlp-endpoint={URL}" in router_command(resource, "r", otlp_endpoint=OF_THE_CHART).arguments


def test_without_it_only_the_router_of_a_chart_with_a_collector_exports(document: Make) -> None:
    resource = parsed(document)
    for role in (Role.PARAMETER, Role.DECODE):
        command = engine_command(resource, role)
        assert not any("otlp" in argument for argument in command.arguments)
        assert not any(entry["name"].startswith("OTEL") for entry in command.environment)
    assert f"--otlp-endpoint={OF_THE_CHART}" in router_command(resource, "r", otlp_endpoint=OF_THE_CHART).arguments
    assert not any("otlp" in argument for argument in router_command(resource, "r").arguments)


def test_what_is_compiled_does_not_depend_on_it(document: Make) -> None:
    spec = parsed(document).spec
    keys = {compile_cache_key(spec, Role.DECODE, options) for options in ({}, {"otlp-traces-endpoint": URL})}
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({"traces": {"endpoint": "otel-collector:4317"}}, "spec.traces.endpoint", "OTLP over HTTP with its path"),
        ({"traces": {"endpoint": "http://otel-collector:4318"}}, "spec.traces.endpoint", "with its path"),
        ({"traces": {"endpoint": "http://user:key@host/v1/traces"}}, "spec.traces.endpoint", "with its path"),
        ({"traces": {"endpoint": "http://host/v1/../x"}}, "spec.traces.endpoint", "with its path"),
        (
            {"traces": {"endpoint": URL}, "decode": {"args": {"otlp-traces-endpoint": URL}}},
            "spec.decode.args.otlp-traces-endpoint",
            "spec.traces sets this option",
        ),
        (
            {"traces": {"endpoint": URL}, "decode": {"env": {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}}},
            "spec.decode.env.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "OTLP over HTTP, as the router",
        ),
    ],
    ids=["gRPC", "no path", "a password", "a parent folder", "twice", "gRPC by a variable"],
)
def test_what_cannot_work_is_refused(document: Make, spec: Json, field: str, said: str) -> None:
    problems = {one.field: one.message for one in examine(document(**spec), RenderSettings()).problems}
    assert said in problems[field]
