"""The path HostLocal in a spec: the choice, what follows from it, and what it cannot be combined with."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.transfer import HostLocal
from pdinference.api.validation import InvalidResourceError, validated

Make = Callable[..., dict[str, Any]]

RDMA = {"resourceName": "rdma/ib"}
CLAIM = {"accelerator": {"devices": {"deviceClassName": "gpu.nvidia.com"}}}


@pytest.mark.parametrize(
    ("transfer", "reason", "expected"),
    [
        ({}, "path is Auto, and hostLocal is not set", None),
        ({"hostLocal": {}}, "path is Auto, and hostLocal is set", (1, 1)),
        ({"hostLocal": {"parameter": 2, "decode": 3}}, "path is Auto, and hostLocal is set", (2, 3)),
        ({"hostLocal": {}, "rdma": RDMA}, "path is Auto, and rdma is set", None),
        ({"path": "HostLocal"}, "path is HostLocal", (1, 1)),
        ({"path": "Network", "hostLocal": {}}, "path is Network", None),
    ],
    ids=str,
)
def test_the_path_follows_from_the_spec_alone(
    document: Make, transfer: dict[str, Any], reason: str, expected: tuple[int, int] | None
) -> None:
    spec = validated(document(transfer=transfer)).spec
    wanted = None if expected is None else HostLocal(parameter=expected[0], decode=expected[1])
    assert spec.host_local == wanted
    assert spec.transfer.path_reason == reason
    assert spec.engine_roles == ENGINE_ROLES
    assert spec.workload_roles == (ENGINE_ROLES if wanted is None else (Role.DECODE,))


def test_without_p_there_is_no_path(document: Make) -> None:
    spec = validated(document(mode="Aggregated", transfer={"path": "HostLocal", "connector": "Mooncake"})).spec
    assert spec.host_local is None
    assert spec.workload_roles == (Role.DECODE,)


def test_a_pod_has_the_devices_of_all_its_engines(document: Make) -> None:
    roles = {"parameter": {"parallelism": {"tensor": 2}}, "decode": {"parallelism": {"tensor": 4}, "replicas": 3}}
    spec = validated(document(transfer={"hostLocal": {"parameter": 2, "decode": 1}}, **roles)).spec
    assert spec.devices_per_pod(Role.DECODE) == spec.gpus(Role.DECODE) == 8
    assert [spec.instances(role) for role in ENGINE_ROLES] == [6, 3]
    apart = validated(document(**roles)).spec
    assert [apart.gpus(role) for role in ENGINE_ROLES] == [2, 4]
    assert [apart.instances(role) for role in ENGINE_ROLES] == [1, 3]
    cpu = {"accelerator": {"type": "CPU"}}
    assert validated(document(transfer={"hostLocal": {}}, parameter=cpu, decode=cpu)).spec.gpus(Role.DECODE) == 0


def test_pods_run_on_the_products_of_p_wherever_d_is_placed(document: Make) -> None:
    roles = {
        "parameter": {"accelerator": {"products": ["NVIDIA-H200"]}},
        "decode": {"placement": {"nodeSelector": {"pool": "fast"}}},
    }
    assert _spec(document, transfer={"hostLocal": {}}, **roles).products(Role.DECODE) == ["NVIDIA-H200"]
    assert _spec(document, **roles).products(Role.DECODE) == []


def test_the_budget_counts_whole_pods(document: Make) -> None:
    shared = {"hostLocal": {"parameter": 1, "decode": 2}}
    decode = {"replicas": 2}
    assert _problems(document, transfer=shared, decode=decode, autoscaling={"gpuBudget": 6}) == {}
    assert "autoscaling.gpuBudget" in _problems(document, transfer=shared, decode=decode, autoscaling={"gpuBudget": 5})


def test_only_d_needs_autoscaling_to_scale_to_zero(document: Make) -> None:
    together = {"decode": {"autoscaling": {"maxReplicas": 2}}, "autoscaling": {"scaleToZero": {}}}
    assert _spec(document, transfer={"hostLocal": {}}, **together).scale_to_zero is not None
    assert "autoscaling.scaleToZero" in _problems(document, **together)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"transfer": {"path": "HostLocal", "connector": "Mooncake"}}, "transfer.connector"),
        ({"transfer": {"path": "HostLocal", "rdma": RDMA}}, "transfer.rdma"),
        ({"parameter": {"parallelism": {"tensor": 2, "nodes": 2}}}, "transfer.path"),
        ({"parameter": {"parallelism": {"pipeline": 2}}}, "transfer.path"),
        ({"parameter": {"parallelism": {"data": 2}}}, "transfer.path"),
        ({"decode": {"parallelism": {"data": 2}}}, "transfer.path"),
        ({"decode": {"accelerator": {"type": "CPU"}}}, "decode.accelerator"),
        ({"decode": {"accelerator": {"resourceName": "amd.com/gpu"}}}, "decode.accelerator"),
        ({"decode": CLAIM}, "decode.accelerator"),
        ({"decode": {"accelerator": {"products": ["NVIDIA-L4"]}}}, "decode.accelerator"),
        ({"decode": {"kvTiers": {"cpu": {"size": "1Gi"}}}}, "transfer.path"),
        (
            {
                "transfer": {"hostLocal": {"parameter": 1, "decode": 4}},
                "parameter": {**CLAIM, "parallelism": {"tensor": 8}},
                "decode": {**CLAIM, "parallelism": {"tensor": 8}},
            },
            "transfer.hostLocal",
        ),
        ({"transfer": {"hostLocal": {"decode": 9}}}, "transfer.hostLocal.decode"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(document: Make, spec: dict[str, Any], field: str) -> None:
    made = {"transfer": {"hostLocal": {}}, **spec}
    assert f"spec.{field}" in _fields(document, **made)
    if field != "transfer.hostLocal.decode":
        # The same is right on another path.
        other = made["transfer"] | {"path": "Network"}
        assert not {name for name in _fields(document, **made | {"transfer": other}) if name == f"spec.{field}"}


def _spec(document: Make, **spec: Any) -> Spec:
    return validated(document(**spec)).spec


def _fields(document: Make, **spec: Any) -> set[str]:
    return {f"spec.{field}" for field in _problems(document, **spec)}


def _problems(document: Make, **spec: Any) -> dict[str, str]:
    try:
        validated(document(**spec))
    except InvalidResourceError as error:
        return {problem.field.removeprefix("spec."): problem.message for problem in error.problems}
    return {}
