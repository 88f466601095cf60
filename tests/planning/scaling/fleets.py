"""Specs, workloads and pods for tests of replica counts."""

from dataclasses import replace
from typing import Any

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.planning.observed import PodSummary, WorkloadState
from pdinference.planning.scaling.fleet import ScaledFleet
from pdinference.planning.scaling.scale_spec import ScaleSpec

P, D = Role.PARAMETER, Role.DECODE
Part = tuple[list[WorkloadState], list[PodSummary]]
"""Workloads and pods."""
SCALED: dict[str, Any] = {"autoscaling": {"maxReplicas": 10}}


def scale_spec(
    budget: int | None = 8, *, p: Any = SCALED, d: Any = SCALED, ratio: Any = None, **more: Any
) -> ScaleSpec:
    """The replica settings of a PDInference with these roles."""
    joint = {"gpuBudget": budget, "ratio": ratio}
    document = {"model": {"source": {"path": "/m"}}, "parameter": p, "decode": d, "autoscaling": joint, **more}
    return ScaleSpec.from_spec(Spec.model_validate(document))


def between(minimum: int, maximum: int, **more: Any) -> dict[str, Any]:
    """An autoscaled role."""
    return {"autoscaling": {"minReplicas": minimum, "maxReplicas": maximum}, **more}


def gpus(count: int) -> dict[str, Any]:
    """A role whose instances have this number of GPUs."""
    return {"parallelism": {"tensor": count}}


def with_gpus(spec: ScaleSpec, *, p: int = 1, d: int = 1) -> ScaleSpec:
    """The same with other GPUs for an instance, also numbers that no KV transfer works with."""
    of = {P: p, D: d}
    return replace(spec, roles={role: replace(scale, gpus=of[role]) for role, scale in spec.roles.items()})


def workload(role: Role, count: int, revision: str = "a", *, gpus: int = 1, rank: int = 0) -> WorkloadState:
    """A workload with this number of desired pods."""
    return WorkloadState(f"{role}-{rank}-{revision}", role, revision, desired=count, gpus=gpus, node_rank=rank)


def pods(role: Role, count: int, revision: str = "a", *, gpus: int = 1, ending: int = 0) -> list[PodSummary]:
    """Pods, the last of which are terminating."""
    return [
        PodSummary(f"{role}-{revision}-{n}", role, revision, gpus=gpus, terminating=n >= count - ending)
        for n in range(count)
    ]


def revision(p: int, d: int, name: str = "a", *, gpus: int = 1) -> Part:
    """The workloads and the pods of a revision."""
    workloads = [workload(P, p, name, gpus=gpus), workload(D, d, name, gpus=gpus)]
    return workloads, [*pods(P, p, name, gpus=gpus), *pods(D, d, name, gpus=gpus)]


def fleet(*parts: Part) -> ScaledFleet:
    """Several revisions side by side."""
    return ScaledFleet([one for workloads, _ in parts for one in workloads], [one for _, pods in parts for one in pods])
