"""Inputs of a status: a resource that serves, starts, or sleeps."""

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from pdinference.api.names import ENGINE_ROLES, SERVING_ROLES, Role
from pdinference.api.v1alpha1 import Condition, Status
from pdinference.planning.observations import Observations
from pdinference.planning.observed import PodProblem, PodSummary, WorkloadState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.sleep_and_wake import Activity
from pdinference.planning.status import StatusInputs, build_status

NOW = datetime(2026, 11, 5, 12, 0, tzinfo=UTC)
NAMES = {Role.PARAMETER: "x-parameter-r1", Role.DECODE: "x-decode-r1", Role.ROUTER: "x-router"}


def workload(role: Role, ready: int = 1) -> WorkloadState:
    return WorkloadState(NAMES[role], role, "r1", 1, 1, 1, ready, ready, observed=True)


def pod(role: Role, *, ready: bool = True, problem: PodProblem | None = None, revision: str = "r1") -> PodSummary:
    return PodSummary(f"x-{role}-0", role, revision, "Running", ready=ready, problem=problem)


def having(inputs: StatusInputs, **changes: Any) -> StatusInputs:
    """The inputs with these values, each in the part that has a field of this name."""
    measured = {fact.name for fact in fields(Observations)} & changes.keys()
    facts = {name: changes.pop(name) for name in measured}
    return replace(inputs, observations=replace(inputs.observations, **facts), **changes)


SERVING = StatusInputs(
    namespace="ns",
    name="x",
    generation=3,
    url="http://x.ns.svc",
    target="r1",
    desired=dict.fromkeys(Role, 1),
    rollout=RolloutPlan(serving="r1", complete=True, keep=frozenset({"r1"})),
    workloads={role: workload(role) for role in SERVING_ROLES},
    pods=tuple(pod(role) for role in SERVING_ROLES),
)
STARTING = replace(
    SERVING,
    rollout=RolloutPlan(serving="", complete=False, keep=None),
    workloads={role: workload(role, ready=0) for role in SERVING_ROLES},
    pods=tuple(pod(role, ready=False) for role in SERVING_ROLES),
)
ASLEEP = replace(
    SERVING,
    workloads={**SERVING.workloads, **{role: replace(workload(role), desired=0) for role in ENGINE_ROLES}},
    pods=(pod(Role.ROUTER),),
    autoscalers={Role.PARAMETER: None, Role.DECODE: None},
    scales_to_zero=True,
    asleep=True,
    observations=Observations(activity=Activity(held=False, idle_seconds=900)),
)


def built(inputs: StatusInputs, previous: Status | None = None, now: datetime = NOW) -> Status:
    return build_status(inputs, previous=previous or Status(), now=now)


def conditions(status: Status) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in status.conditions}
