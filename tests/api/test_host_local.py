"""The path HostLocal in a spec: the choice, what follows from it, and what it cannot be combined with."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.transfer import HostLocal
from pdinference.api.validation import InvalidResourceError, validated
from tests.api.paths import WRONG_PATHS

Make = Callable[..., dict[str, Any]]

RDMA = {"resourceName": "rdma/ib"}


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
    spec = validated(document(mode="Aggregated", transfer={"path": "HostLocal"})).spec
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


@pytest.mark.parametrize(("spec", "field"), WRONG_PATHS, ids=str)
def test_what_cannot_work_is_refused(document: Make, spec: dict[str, Any], field: str) -> None:
    assert field in _problems(document, **spec)
    # The same is right on another path.
    other = spec["transfer"] | {"path": "Network"}
    assert field not in _problems(document, **spec | {"transfer": other})


def test_the_number_of_engines_is_bounded(document: Make) -> None:
    for role in ENGINE_ROLES:
        for number in (0, 9):
            assert f"transfer.hostLocal.{role}" in _problems(document, transfer={"hostLocal": {role: number}})


def _spec(document: Make, **spec: Any) -> Spec:
    return validated(document(**spec)).spec


def _problems(document: Make, **spec: Any) -> dict[str, str]:
    try:
        validated(document(**spec))
    except InvalidResourceError as error:
        return {problem.field.removeprefix("spec."): problem.message for problem in error.problems}
    return {}
