"""Nodes that a pod may run on, by the scheduler's rules."""

from typing import Any

import pytest

from pdinference.cli.doctor.matching import may_run, selects

GPU = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}


def node(taints: Any = (), *, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "labels": {"zone": "east", "count": "8"}},
        "spec": {"taints": list(taints), **spec},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def affine(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("pod", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "east"}}, True),
        ({"nodeSelector": {"zone": "east", "disk": "ssd"}}, False),
        (affine({"matchExpressions": [expression("In", "west", "east")]}), True),
        (affine({"matchExpressions": [expression("NotIn", "east")]}), False),
        (affine({"matchExpressions": [expression("NotIn", "x", key="absent")]}), True),
        (affine({"matchExpressions": [expression("Exists")]}, {"matchExpressions": [expression("In", "x")]}), True),
        (affine({"matchExpressions": [expression("DoesNotExist")]}), False),
        (affine({"matchExpressions": [expression("Gt", "7", key="count")]}), True),
        (affine({"matchExpressions": [expression("Lt", "8", key="count")]}), False),
        (affine({"matchExpressions": [expression("Gt", "1")]}), False),
        (affine({"matchFields": [expression("In", "b", key="metadata.name")]}), False),
        (affine({}), False),
    ],
)
def test_labels(pod: dict[str, Any], fits: bool) -> None:
    assert may_run(pod, node()) is fits


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "other"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints(toleration: dict[str, Any], fits: bool) -> None:
    assert not may_run({}, node([GPU]))
    assert may_run({"tolerations": [toleration]}, node([GPU])) is fits


def test_a_preference_against_a_node_does_not_exclude_it() -> None:
    assert may_run({}, node([{**GPU, "effect": "PreferNoSchedule"}]))


def test_nodes_that_are_cordoned_or_not_ready_do_not_count() -> None:
    assert not may_run({}, node(unschedulable=True))
    assert not may_run({}, node(ready="Unknown"))


def test_selectors_of_policies() -> None:
    assert selects({}, {"a": "b"})
    assert selects({"matchLabels": {"a": "b"}, "matchExpressions": [expression("DoesNotExist")]}, {"a": "b"})
    assert not selects({"matchLabels": {"a": "c"}}, {"a": "b"})
