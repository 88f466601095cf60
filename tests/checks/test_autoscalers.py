"""Metrics and behavior of autoscalers are examined before the API server sees the HorizontalPodAutoscaler.

tests/integration/test_edges.py sends what passes to an API server.
"""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.v1alpha1 import PDInference
from pdinference.checks.autoscalers import autoscaler_problems
from pdinference.planning.scaling.presets import PRESETS

Make = Callable[..., PDInference]
TARGET = {"type": "AverageValue", "averageValue": "10"}
EXTERNAL = {"type": "External", "external": {"metric": {"name": "queue"}, "target": TARGET}}
PACE = {"type": "Pods", "value": 1, "periodSeconds": 60}


def found(resource: Make, **scaling: Any) -> list[tuple[str, str]]:
    of = resource(decode={"autoscaling": {"maxReplicas": 3, **scaling}})
    return [(problem.field, problem.message) for problem in autoscaler_problems(of.spec)]


def external(**members: Any) -> dict[str, Any]:
    return {"type": "External", "external": {**EXTERNAL["external"], **members}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "metric",
    [
        EXTERNAL,
        {**EXTERNAL, "pods": None},
        external(target={"type": "Value", "value": 5}),
        external(metric={"name": "queue", "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
        {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "vllm", "target": TARGET}},
        {"type": "Pods", "pods": {"metric": {"name": "queue"}, "target": TARGET}},
        {
            "type": "Object",
            "object": {
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "llama"},
                "metric": {"name": "queue"},
                "target": {"type": "Value", "value": "1k"},
            },
        },
    ],
)
def test_metrics_that_the_api_server_accepts_pass(resource: Make, metric: Any) -> None:
    assert found(resource, metrics=[metric]) == []


@pytest.mark.parametrize(
    ("metric", "field", "words"),
    [
        ({}, "type", "required"),
        ({**EXTERNAL, "type": "external"}, "type", '"External"'),
        ({**EXTERNAL, "type": "Pods"}, "type", "exactly the member"),
        ({**EXTERNAL, "pods": {"metric": {"name": "a"}, "target": TARGET}}, "type", "exactly the member"),
        ({**EXTERNAL, "external": []}, "external", "object"),
        ({**EXTERNAL, "extra": 1}, "extra", "Unknown field"),
        (external(metric={"name": "a/b"}), "external.metric.name", "slashes"),
        (external(target={"type": "Value"}), "external.target", "either value or averageValue"),
        (external(target={**TARGET, "averageValue": "0"}), "external.target.averageValue", "at least 1m"),
        (external(target={**TARGET, "averageValue": "1GB"}), "external.target.averageValue", "quantity"),
        (
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 0}},
            },
            "resource.target.averageUtilization",
            "greater than or equal to 1",
        ),
        (
            {"type": "ContainerResource", "containerResource": {"name": "gpu", "container": "vllm", "target": TARGET}},
            "containerResource.name",
            "cpu, memory",
        ),
        (
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "A", "target": TARGET}},
            "containerResource.container",
            "name of a container",
        ),
    ],
)
def test_other_metrics_are_refused_by_field(resource: Make, metric: Any, field: str, words: str) -> None:
    (problem,) = found(resource, metrics=[EXTERNAL, metric])
    assert problem[0] == f"spec.decode.autoscaling.metrics[1].{field}"
    assert words in problem[1]


@pytest.mark.parametrize(
    "behavior",
    [
        {},
        {"scaleUp": {"policies": [PACE]}, "scaleDown": {"selectPolicy": "Disabled"}},
        {"scaleDown": {"stabilizationWindowSeconds": 3600, "tolerance": "0.05"}},
        *(preset.behavior for preset in PRESETS.values()),
    ],
)
def test_behavior_that_the_api_server_accepts_passes(resource: Make, behavior: Any) -> None:
    assert found(resource, behavior=behavior) == []


@pytest.mark.parametrize(
    ("rules", "field", "words"),
    [
        ({"stabilizationWindowSeconds": 3601}, "stabilizationWindowSeconds", "3600"),
        ({"stabilizationWindowSeconds": -1}, "stabilizationWindowSeconds", "0"),
        ({"stabilisationWindowSeconds": 1}, "stabilisationWindowSeconds", "Unknown field"),
        ({"selectPolicy": "max"}, "selectPolicy", '"Max"'),
        ({"tolerance": "-1"}, "tolerance", "0 or more"),
        ({"policies": []}, "policies", "at least 1"),
        ({"policies": [{**PACE, "periodSeconds": 1801}]}, "policies[0].periodSeconds", "1800"),
        ({"policies": [{**PACE, "value": 0}]}, "policies[0].value", "1"),
        ({"policies": [{**PACE, "value": "4"}]}, "policies[0].value", "without quotes"),
        ({"policies": [{"type": "Pods", "value": 1}]}, "policies[0].periodSeconds", "required"),
    ],
)
def test_other_behavior_is_refused_by_field(resource: Make, rules: Any, field: str, words: str) -> None:
    (problem,) = found(resource, behavior={"scaleDown": rules})
    assert problem[0] == f"spec.decode.autoscaling.behavior.scaleDown.{field}"
    assert words in problem[1]
