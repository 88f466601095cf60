"""Inputs of a status: a first roll-out, a second one, and pods with problems."""

from dataclasses import replace
from typing import Any

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import PodProblem, PodSummary
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.status import StatusInputs
from tests.planning.statuses import STARTING, pod, workload

FIRST = STARTING
SECOND = replace(
    FIRST,
    rollout=RolloutPlan(serving="r0", complete=False, keep=frozenset({"r0", "r1"})),
    workloads={**STARTING.workloads, Role.ROUTER: replace(workload(Role.ROUTER), replicas=2, updated=1)},
    pods=(*STARTING.pods, pod(Role.ROUTER, revision="r0"), *(pod(role, revision="r0") for role in ENGINE_ROLES)),
)
"""r0 serves, r1 starts."""
PULL = PodProblem("ErrImagePull", "not found", "vllm", "x:1")
LOOP = PodProblem("CrashLoopBackOff", "Error", "vllm", "x:1", exit_code=1, last_words="no", restarts=2)
NO_ROOM = PodProblem("Unschedulable", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")


def with_decode(inputs: StatusInputs, problem: PodProblem | None = None, **pod_fields: Any) -> StatusInputs:
    """Replace the D pod of r1."""
    fields = {"ready": False, "problem": problem, **pod_fields}
    other = (p for p in inputs.pods if (p.role, p.revision) != (Role.DECODE, "r1"))
    return replace(inputs, pods=(*other, PodSummary("x-decode-0", Role.DECODE, "r1", "Running", **fields)))
