"""The autoscalers of a role, for each source of the load."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdinference.api.names import LABEL_ROLE, Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.manifests import KedaSettings, Manifest, Rendered, RenderSettings, render
from pdinference.planning.scaling.gauges import adapter_rules
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.signals import METRICS
from tests.conftest import Golden
from tests.manifests.rendering import METRICS_PORTS

Make = Callable[..., PDInference]
GOLDEN = Path(__file__).parent / "golden" / "scaled-objects.yaml"
SCALED = {"autoscaling": {"minReplicas": 2, "maxReplicas": 5}}
KEDA = RenderSettings(
    keda=KedaSettings("https://prometheus:9090", ("ClusterTriggerAuthentication", "prometheus"), ("tls", "bearer")),
    operator_namespace="operators",
)
OF_DECODE = {"pdinference.io/name": "llama", "pdinference.io/role": "decode"}


def use(type_: str, **amount: Any) -> dict[str, Any]:
    return {"type": type_, **amount}


def external(name: str, labels: dict[str, str], target: dict[str, Any] | None = None) -> dict[str, Any]:
    selected = {"name": name, "selector": {"matchLabels": labels}}
    return {"type": "External", "external": {"metric": selected, "target": target or use("Value", value="1")}}


def resource_metric(name: str, target: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def scalers_in(rendered: Rendered) -> dict[Role, Manifest]:
    """What scales each role."""
    found = [o for o in rendered.objects if o["kind"] in {"HorizontalPodAutoscaler", "ScaledObject"}]
    return {Role(o["metadata"]["labels"][LABEL_ROLE]): o for o in found}


def scaled(resource: Make, source: str | None, settings: RenderSettings = KEDA, **decode: Any) -> dict[Role, Manifest]:
    chosen = {"autoscaling": {"source": source}} if source else {}
    parts = {"parameter": SCALED, "decode": {"autoscaling": {**SCALED["autoscaling"], **decode}}}
    return scalers_in(render(resource(**parts, **chosen), settings))


def test_scaled_objects_are_as_pinned(resource: Make, golden: Golden) -> None:
    rendered = scaled(resource, "KEDA", targets={"kvUsage": 85, "queuedPromptTokens": 8000})
    text = yaml.safe_dump_all(rendered.values(), sort_keys=False, width=120)
    golden(GOLDEN, text)


def test_a_scaled_object_has_the_range_the_pace_and_the_targets_of_the_hpa(resource: Make) -> None:
    hpas, objects = scaled(resource, None), scaled(resource, "KEDA")
    for role, found in objects.items():
        spec, hpa = found["spec"], hpas[role]["spec"]
        assert spec["scaleTargetRef"] == hpa["scaleTargetRef"]
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (hpa["minReplicas"], hpa["maxReplicas"])
        assert spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == hpa["behavior"]
        thresholds = [trigger["metadata"]["threshold"] for trigger in spec["triggers"]]
        assert thresholds == [str(milli / 1000) for milli in PRESETS[role].targets.values()]
        for trigger in spec["triggers"]:
            assert trigger["metadata"]["ignoreNullValues"] == "false"  # or an empty answer would be a load of 0
            assert trigger["authenticationRef"] == {"kind": "ClusterTriggerAuthentication", "name": "prometheus"}
            assert trigger["metadata"]["authModes"] == "tls,bearer"  # or KEDA does not use its secrets


def test_the_adapter_is_asked_for_the_gauges_by_their_own_labels(resource: Make) -> None:
    latency = "pdinference_time_to_first_token_milliseconds_p90"
    own, other = external(latency, OF_DECODE), external("queue_length", {"queue": "a"})
    for role, hpa in scaled(resource, "PrometheusAdapter", metrics=[own, other]).items():
        metrics = {metric["external"]["metric"]["name"]: metric["external"] for metric in hpa["spec"]["metrics"]}
        for signal, milli in PRESETS[role].targets.items() if role is Role.PARAMETER else ():
            assert metrics[signal]["target"]["averageValue"] == f"{milli}m"
        ours = {"inference_name": "llama", "inference_role": str(role)}
        for name, metric in metrics.items():
            assert metric["metric"]["selector"]["matchLabels"] == ({"queue": "a"} if name == "queue_length" else ours)


@pytest.mark.parametrize("metric", [{"type": "External"}, {"external": {"metric": 1}}, {"external": {"metric": {}}}])
def test_what_the_adapter_does_not_know_is_not_changed(resource: Make, metric: Any) -> None:
    hpa = scaled(resource, "PrometheusAdapter", metrics=[metric])[Role.DECODE]
    assert hpa["spec"]["metrics"] == [metric]


def test_the_adapters_rule_covers_every_metric_and_names_the_operator() -> None:
    (rule,) = adapter_rules("operators")["externalRules"]
    (names,) = re.findall(r'__name__=~"([^"]+)"', rule["seriesQuery"])
    assert all(re.fullmatch(names, metric) for metric in METRICS)
    assert 'namespace="operators"' in rule["seriesQuery"]
    assert 'namespace="operators"' in rule["metricsQuery"]


class TestTriggersOfKeda:
    def test_metrics_of_the_user_become_triggers(self, resource: Make) -> None:
        metrics = [
            {"type": "Resource", "resource": {"name": "cpu", "target": use("Utilization", averageUtilization=60)}},
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "memory",
                    "container": "vllm",
                    "target": use("AverageValue", averageValue="8Gi"),
                },
            },
            external("queue_length", {"queue": "a"}, use("Value", value="30")),
            external("queue_length", {"queue": "b"}, use("AverageValue", averageValue="1500m")),
            external("pdinference_time_to_first_token_milliseconds_p90", OF_DECODE, use("Value", value="500")),
        ]
        found = scaled(resource, "KEDA", metrics=metrics)[Role.DECODE]["spec"]["triggers"]
        cpu, memory, first, second, latency = found
        assert cpu == {"type": "cpu", "name": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}}
        assert memory["metadata"] == {"value": "8Gi", "containerName": "vllm"}
        assert first["metadata"]["query"] == 'sum(queue_length{queue="a",namespace="models"})'
        assert (first["metricType"], first["metadata"]["threshold"]) == ("Value", "30")
        assert (second["metricType"], second["metadata"]["threshold"]) == ("AverageValue", "1.5")
        assert latency["metadata"]["query"].startswith(
            "max(pdinference_time_to_first_token_milliseconds_p90{inference_"
        )
        assert len({trigger["name"] for trigger in found}) == len(found)
        assert all("serverAddress" in trigger["metadata"] for trigger in (first, second, latency))

    @pytest.mark.parametrize(
        ("metric", "field", "word"),
        [
            ({"type": "Pods", "pods": {}}, "type", "spec.autoscaling.source"),
            ({"type": "Object", "object": {}}, "type", "spec.autoscaling.source"),
            ({}, "type", "External"),
            ({"type": ["External"]}, "type", "External"),
            ({"type": "External", "external": "all"}, "external", "object"),
            ({"type": "External", "external": {}}, "external.metric", "required"),
            (resource_metric("disk", use("AverageValue", averageValue="1")), "resource.name", "cpu"),
            (resource_metric("cpu", use("Value", averageValue="1")), "resource.target.type", "AverageValue"),
            (resource_metric("cpu", use("Utilization", averageValue="1")), "resource.target", "averageUtilization"),
            (external("a", {}, use("Utilization", value="1")), "external.target.type", "AverageValue"),
            (external("a", {}, use("Value", averageValue="1")), "external.target", "value"),
            (
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}},
                "resource.target",
                "averageUtilization",
            ),
        ],
    )
    def test_other_metrics_are_refused_by_field(self, resource: Make, metric: Any, field: str, word: str) -> None:
        with pytest.raises(InvalidResourceError) as error:
            scaled(resource, "KEDA", metrics=[metric])
        problem = error.value.problems[0]
        assert problem.field == f"spec.decode.autoscaling.metrics[0].{field}"
        assert word in problem.message

    @pytest.mark.parametrize(
        ("name", "labels", "field"),
        [
            ("queue-length", {}, "external.metric"),
            ("up) or vector(1", {}, "external.metric"),
            ("queue", {"a.b/c": "x"}, "external.metric"),
            ("queue", {'a="x"} or up{b': "x"}, "external.metric"),
            ("pdinference_decode_load", {}, "external.metric.selector"),
            ("pdinference_decode_load", {"inference_namespace": "other"}, "external.metric.selector"),
        ],
    )
    def test_names_that_promql_does_not_take_are_refused(
        self, resource: Make, name: str, labels: Any, field: str
    ) -> None:
        with pytest.raises(InvalidResourceError) as error:
            scaled(resource, "KEDA", metrics=[external(name, labels)])
        assert [p.field for p in error.value.problems] == [f"spec.decode.autoscaling.metrics[0].{field}"]

    @pytest.mark.parametrize("amount", ["0", "0m", "100n", "-1", "1e400", "many"])
    def test_targets_that_would_break_an_hpa_are_refused(self, resource: Make, amount: str) -> None:
        with pytest.raises(InvalidResourceError, match="target"):
            scaled(resource, "KEDA", metrics=[external("queue", {}, use("Value", value=amount))])


def test_a_role_that_is_not_autoscaled_has_none(resource: Make) -> None:
    only = resource(decode=SCALED, autoscaling={"source": "KEDA"})
    assert set(scalers_in(render(only, KEDA))) == {Role.DECODE}


@pytest.mark.parametrize("source", ["Builtin", "KEDA", "PrometheusAdapter"])
def test_every_source_takes_limits_of_both_roles_and_every_target(resource: Make, source: str) -> None:
    limits = {"gpuBudget": 40, "ratio": {"max": {"parameter": 2}}}
    both = {"autoscaling": {**SCALED["autoscaling"], "targets": {"kvDemand": 80}}}
    found = render(resource(parameter=both, decode=both, autoscaling={"source": source, **limits}), KEDA)
    assert set(scalers_in(found)) == {Role.PARAMETER, Role.DECODE}


def test_an_unknown_source_is_refused(document: Callable[..., Any]) -> None:
    with pytest.raises(InvalidResourceError) as error:
        validated(document(autoscaling={"source": "Prometheus"}))
    assert [problem.field for problem in error.value.problems] == ["spec.autoscaling.source"]


def test_keda_is_refused_where_the_operator_is_not_installed_to_use_it(resource: Make) -> None:
    with pytest.raises(InvalidResourceError, match=r"autoscaling\.keda\.enabled"):
        scaled(resource, "KEDA", RenderSettings())


def test_prometheus_may_read_metrics_if_its_namespace_is_set(resource: Make) -> None:
    settings = RenderSettings(prometheus_namespace="monitoring")
    policies = [o for o in render(resource(), settings).objects if o["kind"] == "NetworkPolicy"]
    assert len(policies) == 3
    for policy in policies:
        rule = policy["spec"]["ingress"][-1]
        assert rule["ports"] == [METRICS_PORTS[policy["metadata"]["name"]] | {"protocol": "TCP"}]
        assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
