"""Inputs of a status: a resource that serves, starts, or sleeps."""

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pdinference.api.names import ENGINE_ROLES, SERVING_ROLES, Role
from pdinference.api.v1alpha1 import Condition, Status
from pdinference.planning.desired_state import DesiredState
from pdinference.planning.observed import PodProblem, PodSummary, WorkloadState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.scale_spec import RoleScale, ScaleSpec
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from pdinference.planning.status import StatusInputs, build_status

NOW = datetime(2026, 11, 5, 12, 0, tzinfo=UTC)
DEADLINE = timedelta(seconds=600)
NAMES = {Role.PARAMETER: "x-parameter-r1", Role.DECODE: "x-decode-r1", Role.ROUTER: "x-router"}


def workload(role: Role, ready: int = 1) -> WorkloadState:
    return WorkloadState(NAMES[role], role, "r1", 1, 1, 1, ready, ready, observed=True)


def pod(role: Role, *, ready: bool = True, problem: PodProblem | None = None, revision: str = "r1") -> PodSummary:
    return PodSummary(f"x-{role}-0", role, revision, "Running", ready=ready, problem=problem)


def having(inputs: StatusInputs, **changes: Any) -> StatusInputs:
    """The inputs with these values, each in the part that has a field of this name."""
    for part in ("desired", "observations"):
        whole = getattr(inputs, part)
        own = {one.name: changes.pop(one.name) for one in fields(whole) if one.name in changes}
        inputs = replace(inputs, **{part: replace(whole, **own)})
    return replace(inputs, **changes)


SERVING = StatusInputs(
    namespace="ns",
    name="x",
    generation=3,
    url="http://x.ns.svc",
    desired=DesiredState(
        revision="r1",
        roles=ENGINE_ROLES,
        replicas=dict.fromkeys(Role, 1),
        scale=ScaleSpec(dict.fromkeys(ENGINE_ROLES, RoleScale.fixed(1))),
        progress_deadline=DEADLINE,
        decode_computes_prompts=False,
    ),
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
ASLEEP = having(
    SERVING,
    workloads={**SERVING.workloads, **{role: replace(workload(role), desired=0) for role in ENGINE_ROLES}},
    pods=(pod(Role.ROUTER),),
    autoscalers={Role.PARAMETER: None, Role.DECODE: None},
    sleeps_after=900,
    asleep=True,
    activity=ReportedActivity(held=False, idle_seconds=900),
)


def built(inputs: StatusInputs, previous: Status | None = None, now: datetime = NOW) -> Status:
    return build_status(inputs, previous=previous or Status(), now=now)


def conditions(status: Status) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in status.conditions}
