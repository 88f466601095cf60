"""Warnings about the way of the KV cache."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.checks.examine import examine
from pdinference.manifests import RenderSettings

Make = Callable[..., dict[str, Any]]

H200 = {"accelerator": {"products": ["NVIDIA-H200"]}}
CPU = {"accelerator": {"type": "CPU"}}
RDMA = {"resourceName": "rdma/ib"}


def warnings(made: dict[str, Any]) -> dict[str, str]:
    found = examine(made, RenderSettings())
    assert not found.problems
    return {warning.field: warning.message for warning in found.warnings}


def test_gpus_that_meet_over_tcp_are_worth_a_warning_that_says_what_to_set(document: Make) -> None:
    message = warnings(document(parameter=H200))["spec.transfer.path"]
    fp8 = "engine.kvCache.dtype: fp8 halves the bytes"
    for advice in ("2.6 to 3.2 GB/s", "transfer.hostLocal", "transfer.rdma", fp8, "path: Network"):
        assert advice in message
    in_fp8 = document(parameter=H200, engine={"kvCache": {"dtype": "fp8_e4m3"}})
    assert "halves" not in warnings(in_fp8)["spec.transfer.path"]


@pytest.mark.parametrize(
    "spec",
    [
        {"transfer": {"hostLocal": {}}},
        {"transfer": {"path": "HostLocal"}},
        {"transfer": {"path": "Network"}},
        {"transfer": {"rdma": RDMA}},
        {"transfer": {"connector": "LMCache", "lmCache": {"remoteUrl": "redis://a:1"}}},
        {"mode": "Aggregated", "parameter": {}, "decode": H200},
        {"decode": CPU, "engine": {"image": "a/cpu:1"}},
    ],
    ids=str,
)
def test_another_way_and_one_that_is_chosen_are_not(document: Make, spec: dict[str, Any]) -> None:
    assert "spec.transfer.path" not in warnings(document(**{"parameter": H200, **spec}))


@pytest.mark.parametrize(
    "spec",
    [
        {"parameter": {**H200, "parallelism": {"pipeline": 2}}},
        {"decode": {"kvTiers": {"cpu": {"size": "64Gi"}}}},
        {"decode": {"accelerator": {"products": ["NVIDIA-L40S"]}}},
    ],
    ids=str,
)
def test_a_way_that_the_rules_refuse_is_not_advised(document: Make, spec: dict[str, Any]) -> None:
    message = warnings(document(**{"parameter": H200, **spec}))["spec.transfer.path"]
    assert "transfer.hostLocal" not in message
    assert "transfer.rdma" in message


def test_fields_of_pods_that_p_does_not_have_are_named(document: Make) -> None:
    own = {**H200, "replicas": 3, "autoscaling": {"maxReplicas": 4}, "placement": {"nodeSelector": {"a": "b"}}}
    made = document(parameter=own, colocation={"topologyKey": "rack"}, transfer={"path": "HostLocal"})
    message = warnings(made)["spec.transfer.path"]
    for field in ("parameter.replicas", "parameter.autoscaling", "parameter.placement", "spec.colocation"):
        assert field in message
    alike = {"placement": {"nodeSelector": {"a": "b"}}}
    made = document(parameter=H200 | alike, decode=alike, transfer={"path": "HostLocal"})
    assert "spec.transfer.path" not in warnings(made)
