"""HPAs, PDScalers, and other changes of manifests for autoscaled roles."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import LABEL_ROLE, Role, instance_labels
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.manifests import Manifest, RenderSettings, render
from pdinference.manifests.autoscaler import scalers
from pdinference.planning.scaling.presets import PRESETS
from tests.manifests.rendering import METRICS_PORTS

Make = Callable[..., PDInference]
SETTINGS = RenderSettings()


def hpas(resource: PDInference) -> dict[Role, Manifest]:
    found = [o for o in render(resource, SETTINGS).objects if o["kind"] == "HorizontalPodAutoscaler"]
    return {Role(hpa["metadata"]["labels"][LABEL_ROLE]): hpa for hpa in found}


def workloads(resource: PDInference) -> dict[str, Manifest]:
    objects = render(resource, SETTINGS).objects
    return {o["metadata"]["name"]: o for o in objects if o["kind"] in {"Deployment", "StatefulSet"}}


def test_without_autoscaling_there_is_none_and_replicas_are_ours(resource: Make) -> None:
    assert hpas(resource()) == {}
    assert all("replicas" in workload["spec"] for workload in workloads(resource()).values())


def test_with_a_gpu_budget_they_are_counted_as_it_allows(resource: Make) -> None:
    budgeted = resource(autoscaling={"gpuBudget": 4})
    assert {"llama-router"} == {name for name, found in workloads(budgeted).items() if "replicas" in found["spec"]}
    assert render(budgeted, SETTINGS).revision == render(resource(), SETTINGS).revision


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.DECODE])
def test_the_workload_of_an_autoscaled_role_says_nothing_about_replicas(resource: Make, role: Role) -> None:
    scaled = resource(**{role: {"replicas": 3, "autoscaling": {"minReplicas": 2, "maxReplicas": 5}}})
    (spec,) = (hpa["spec"] for hpa in hpas(scaled).values())
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 5)
    (workload,) = (found for name, found in workloads(scaled).items() if f"-{role}-" in name)
    assert "replicas" not in workload["spec"]


def test_further_nodes_of_p_have_no_replicas_either_and_no_hpa(resource: Make) -> None:
    groups = {"parallelism": {"pipeline": 3, "nodes": 3}, "autoscaling": {"maxReplicas": 5}}
    scaled = resource(parameter=groups)
    sets = [workload for workload in workloads(scaled).values() if workload["kind"] == "StatefulSet"]
    assert [set_ for set_ in sets if "replicas" in set_["spec"]] == []
    assert len(sets) == 3
    assert len(hpas(scaled)) == 1


def test_the_preset_of_a_role(resource: Make) -> None:
    found = hpas(resource(parameter={"autoscaling": {"maxReplicas": 2}}, decode={"autoscaling": {"maxReplicas": 2}}))
    for role, hpa in found.items():
        metrics = [metric["external"] for metric in hpa["spec"]["metrics"]]
        targets = {metric["metric"]["name"]: metric["target"] for metric in metrics}
        assert targets == {
            signal: {"type": "AverageValue", "averageValue": f"{milli}m"}
            for signal, milli in PRESETS[role].targets.items()
        }
        assert hpa["spec"]["behavior"] == PRESETS[role].behavior


def test_targets_metrics_and_behavior_of_the_user(resource: Make) -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
    }
    behavior = {"scaleDown": {"selectPolicy": "Disabled"}}
    targets = {"kvUsage": 85, "queuedPromptTokens": 8000}
    scaling = {"maxReplicas": 2, "targets": targets, "metrics": [metric], "behavior": behavior}
    spec = hpas(resource(decode={"autoscaling": scaling}))[Role.DECODE]["spec"]
    ours = {m["external"]["metric"]["name"]: m["external"]["target"]["averageValue"] for m in spec["metrics"][:-1]}
    assert ours == {"pdinference_kv_usage": "850m", "pdinference_queued_prompt_tokens": "8000"}
    assert spec["metrics"][-1] == metric
    assert spec["behavior"] == behavior


def test_zero_replicas_stop_the_role(resource: Make) -> None:
    stopped = resource(decode={"replicas": 0, "autoscaling": {"maxReplicas": 2}})
    assert hpas(stopped) == {}
    assert {w["spec"]["replicas"] for name, w in workloads(stopped).items() if "decode" in name} == {0}


def test_autoscaling_is_no_part_of_the_revision(resource: Make) -> None:
    """Turning it on or off restarts nothing."""
    scaled = resource(decode={"autoscaling": {"maxReplicas": 2}})
    assert render(scaled, SETTINGS).revision == render(resource(), SETTINGS).revision


def test_each_autoscaled_role_has_a_scaler_and_no_other(resource: Make) -> None:
    scaled = {"autoscaling": {"maxReplicas": 5}}
    assert scalers(resource()) == {}
    assert set(scalers(resource(decode=scaled))) == {Role.DECODE}
    assert set(scalers(resource(parameter=scaled, decode=scaled))) == {Role.PARAMETER, Role.DECODE}
    assert scalers(resource(decode={**scaled, "replicas": 0})) == {}


def test_the_hpa_scales_a_scaler_that_says_nothing_about_replicas(resource: Make) -> None:
    owner = resource(decode={"autoscaling": {"maxReplicas": 5}})
    scaler = scalers(owner)[Role.DECODE]
    assert scaler["spec"] == {}, "server-side apply would own spec.replicas"
    assert scaler["metadata"]["name"] == f"{owner.metadata.name}-decode"
    assert instance_labels(owner.metadata.name).items() <= scaler["metadata"]["labels"].items()
    (reference,) = scaler["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("PDInference", owner.metadata.uid, True)
    target = hpas(owner)[Role.DECODE]["spec"]["scaleTargetRef"]
    found = {"apiVersion": scaler["apiVersion"], "kind": scaler["kind"], "name": scaler["metadata"]["name"]}
    assert target == found


@pytest.mark.parametrize(
    ("scaling", "field"),
    [
        ({}, "spec.decode.autoscaling.maxReplicas"),
        ({"minReplicas": 3, "maxReplicas": 2}, "spec.decode.autoscaling.maxReplicas"),
        ({"minReplicas": 0, "maxReplicas": 2}, "spec.decode.autoscaling.minReplicas"),
        ({"maxReplicas": 2, "targets": {"kvDemand": 0}}, "spec.decode.autoscaling.targets.kvDemand"),
        ({"maxReplicas": 2, "targets": {"kvdemand": 80}}, "spec.decode.autoscaling.targets.kvdemand"),
    ],
)
def test_what_cannot_work_is_refused(document: Callable[..., Any], scaling: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidResourceError) as error:
        validated(document(decode={"autoscaling": scaling}))
    assert [problem.field for problem in error.value.problems] == [field]


def test_the_operator_may_read_metrics_where_it_runs_in_a_pod(resource: Make) -> None:
    settings = RenderSettings(operator_namespace="system", operator_labels=(("app", "operator"),))
    policies = [o for o in render(resource(), settings).objects if o["kind"] == "NetworkPolicy"]
    for policy in policies:
        rule = policy["spec"]["ingress"][-1]
        assert rule["ports"] == [METRICS_PORTS[policy["metadata"]["name"]] | {"protocol": "TCP"}]
        (peer,) = rule["from"]
        assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "system"}
        assert peer["podSelector"]["matchLabels"] == {"app": "operator"}
    assert len(policies) == 3
    plain = [o for o in render(resource(), SETTINGS).objects if o["kind"] == "NetworkPolicy"]
    assert not [
        rule
        for policy in plain
        for rule in policy["spec"]["ingress"]
        for peer in rule["from"]
        if "namespaceSelector" in peer
    ]
