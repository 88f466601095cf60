"""What scales the pods of a role, by who tells the load."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.manifests import KedaSettings, Rendered, RenderSettings, render
from pdinference.planning.scaling.adapter import adapter_rules
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.signals import Signal
from tests.conftest import Golden

Make = Callable[..., PDInference]
GOLDEN = Path(__file__).parent / "golden" / "scaled-objects.yaml"
SCALED = {"autoscaling": {"minReplicas": 2, "maxReplicas": 5}}
KEDA = RenderSettings(
    keda=KedaSettings("https://prometheus:9090", 60, ("ClusterTriggerAuthentication", "prometheus"), ("tls", "bearer")),
)


def scaled(resource: Make, source: str | None, settings: RenderSettings = KEDA, **decode: Any) -> Rendered:
    chosen = {"autoscaling": {"source": source}} if source else {}
    parts = {"parameter": SCALED, "decode": {"autoscaling": {**SCALED["autoscaling"], **decode}}}
    return render(resource(**parts, **chosen), settings)


def test_scaled_objects_are_as_pinned(resource: Make, golden: Golden) -> None:
    rendered = scaled(resource, "KEDA", targets={"kvUsage": 85, "queuedPromptTokens": 8000})
    text = yaml.safe_dump_all(rendered.autoscalers.values(), sort_keys=False, width=120)
    golden(GOLDEN, text)


def test_a_scaled_object_has_the_range_the_pace_and_the_targets_of_the_hpa(resource: Make) -> None:
    hpas, objects = scaled(resource, None), scaled(resource, "KEDA")
    for role, found in objects.autoscalers.items():
        spec, hpa = found["spec"], hpas.autoscalers[role]["spec"]
        assert spec["scaleTargetRef"] == hpa["scaleTargetRef"]
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (hpa["minReplicas"], hpa["maxReplicas"])
        assert spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == hpa["behavior"]
        thresholds = [trigger["metadata"]["threshold"] for trigger in spec["triggers"]]
        assert thresholds == [str(milli / 1000) for milli in PRESETS[role].targets.values()]
        for trigger in spec["triggers"]:
            assert trigger["metadata"]["ignoreNullValues"] == "false"  # or an empty answer would be a load of 0
            assert trigger["authenticationRef"] == {"kind": "ClusterTriggerAuthentication", "name": "prometheus"}
            assert trigger["metadata"]["authModes"] == "tls,bearer"  # or KEDA does not use its secrets
    assert objects.revision == hpas.revision


def test_prometheus_adapter_is_asked_for_metrics_that_its_rules_define(resource: Make) -> None:
    defined = {rule["name"]["as"] for rule in adapter_rules()["externalRules"]}
    for role, hpa in scaled(resource, "PrometheusAdapter").autoscalers.items():
        metrics = [metric["external"] for metric in hpa["spec"]["metrics"]]
        averages = {metric["metric"]["name"]: metric["target"]["averageValue"] for metric in metrics}
        assert averages == {
            str(signal).replace("pdinference_", f"pdinference_{role}_"): f"{milli}m"
            for signal, milli in PRESETS[role].targets.items()
        }
        assert averages.keys() <= defined
        for metric in metrics:
            assert metric["metric"]["selector"] == {"matchLabels": {"pdinference_io_name": "llama"}}


def test_every_signal_that_can_be_has_a_rule_for_each_role() -> None:
    defined = [rule["name"]["as"] for rule in adapter_rules()["externalRules"]]
    assert len(defined) == len(set(defined)) == 2 * (len(Signal) - 1)
    assert not [name for name in defined if "kv_demand" in name]


class TestWhatMayStandIn:
    def test_scaled_objects_where_nobody_chose(self, resource: Make) -> None:
        assert scaled(resource, None).substitutes == scaled(resource, "KEDA").autoscalers

    @pytest.mark.parametrize("source", ["Builtin", "PrometheusAdapter", "KEDA"])
    def test_nothing_where_somebody_did(self, resource: Make, source: str) -> None:
        assert scaled(resource, source).substitutes == {}

    def test_nothing_without_keda(self, resource: Make) -> None:
        assert scaled(resource, None, RenderSettings()).substitutes == {}

    @pytest.mark.parametrize("decode", [{"targets": {"kvDemand": 80}}, {"metrics": [{"type": "Resource"}]}])
    def test_nothing_for_what_keda_could_not_do(self, resource: Make, decode: Any) -> None:
        assert scaled(resource, None, **decode).substitutes == {}

    @pytest.mark.parametrize("limit", [{"gpuBudget": 20}, {"ratio": {"max": {"parameter": 2}}}])
    def test_nothing_for_limits_that_keda_could_not_keep(self, resource: Make, limit: Any) -> None:
        limited = resource(parameter=SCALED, decode=SCALED, autoscaling=limit)
        assert render(limited, KEDA).substitutes == {}


def test_a_role_that_is_not_autoscaled_has_none(resource: Make) -> None:
    only = resource(decode=SCALED, autoscaling={"source": "KEDA"})
    assert set(render(only, KEDA).autoscalers) == {Role.DECODE}


@pytest.mark.parametrize(
    ("source", "decode", "field"),
    [
        ("KEDA", {"targets": {"kvDemand": 80}}, "spec.decode.autoscaling.targets.kvDemand"),
        ("PrometheusAdapter", {"targets": {"kvDemand": 80}}, "spec.decode.autoscaling.targets.kvDemand"),
        ("KEDA", {"metrics": [{"type": "Resource"}]}, "spec.decode.autoscaling.metrics"),
        ("Prometheus", {}, "spec.autoscaling.source"),
    ],
)
def test_what_a_source_cannot_do_is_refused(
    document: Callable[..., Any], source: str, decode: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidResourceError) as error:
        validated(document(autoscaling={"source": source}, decode={"autoscaling": {"maxReplicas": 2, **decode}}))
    assert [problem.field for problem in error.value.problems] == [field]


@pytest.mark.parametrize("limit", [{"gpuBudget": 20}, {"ratio": {"max": {"parameter": 2}}}])
def test_keda_cannot_keep_limits_of_both_roles(document: Callable[..., Any], limit: dict[str, Any]) -> None:
    def problems(source: str) -> list[str]:
        try:
            validated(document(parameter=SCALED, decode=SCALED, autoscaling={"source": source, **limit}))
        except InvalidResourceError as error:
            return [problem.field for problem in error.problems]
        return []

    assert problems("KEDA") == [f"spec.autoscaling.{next(iter(limit))}"]
    assert problems("Builtin") == problems("PrometheusAdapter") == []


def test_keda_is_refused_where_the_operator_is_not_installed_to_use_it(resource: Make) -> None:
    with pytest.raises(InvalidResourceError, match=r"autoscaling\.keda\.enabled"):
        scaled(resource, "KEDA", RenderSettings())


def test_prometheus_may_read_metrics_where_the_operator_knows_its_namespace(resource: Make) -> None:
    settings = RenderSettings(prometheus_namespace="monitoring")
    policies = [o for o in render(resource(), settings).objects if o["kind"] == "NetworkPolicy"]
    assert len(policies) == 2
    for policy in policies:
        rule = policy["spec"]["ingress"][-1]
        assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
        assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
