"""Inputs of the decision: replica counts of the roles, and the state of the roll-out.

Tests: tests/cli/test_explain.py
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.plain_text import plain
from pdinference.api.v1alpha1.conditions import OBJECTIVES_MET
from pdinference.cli.explain.moment import Moment
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from pdinference.inference.scale_targets import recommended
from pdinference.inference.snapshot import Snapshot
from pdinference.planning.condition_changes import ROLE_WORDS, find
from pdinference.planning.observed import WorkloadState
from pdinference.planning.pod_diagnosis import most_severe

_LONGEST = 1000
_SCALERS = {AUTOSCALER.name: "HPA", SCALED_OBJECT.name: "KEDA"}


@dataclass(frozen=True, slots=True)
class RoleCount:
    """The replica counts of a role in one revision.

    Attributes:
        revision: Revision of the pod template.
        recommended: Replica count of the scale target or of the spec; None if neither applies.
        by: Source of the recommendation.
        allocated: Replica count that the operator sets; None if it does not set one.
        replicas: Number of pods.
        ready: Number of ready pods.
        limit: Why the allocated count differs from the recommended one; empty if it does not.
    """

    role: str
    revision: str
    recommended: int | None
    by: str
    allocated: int | None
    replicas: int
    ready: int
    limit: str


def role_counts(moment: Moment) -> list[RoleCount]:
    """Replica counts of P, D and router. Those of P and D are per revision, the target revision first."""
    snapshot = moment.snapshot
    target = snapshot.desired.revision
    revisions = {workload.revision for _, workload in snapshot.workloads() if workload.role in ENGINE_ROLES}
    found = [
        _engine(moment, role, revision)
        for role in ENGINE_ROLES
        for revision in (target, *sorted(revisions - {target}))
        if revision not in snapshot.aggregated_revisions or role is Role.DECODE
    ]
    router, wanted = snapshot.router, snapshot.desired.replicas[Role.ROUTER]
    pods = (router.replicas, router.ready) if router is not None else (0, 0)
    revision = plain(router.revision, 63) if router is not None else ""
    return [*found, RoleCount(str(Role.ROUTER), revision, wanted, "spec", wanted, *pods, "")]


def _engine(moment: Moment, role: Role, revision: str) -> RoleCount:
    snapshot, allocation = moment.snapshot, moment.plan.allocation
    allocated = allocation.replicas[role].get(revision)
    limit = allocation.limited.get(role) if allocated is not None else None
    live = snapshot.leading_workloads(revision).get(role) or WorkloadState("", role, revision, 0)
    count, by = _recommended(snapshot, role) if allocated is not None else (None, "")
    message = f"{limit.reason}: {limit.message}" if limit is not None else ""
    shown = plain(message, _LONGEST)
    return RoleCount(str(role), plain(revision, 63), count, by, allocated, live.replicas, live.ready, shown)


def _recommended(snapshot: Snapshot, role: Role) -> tuple[int | None, str]:
    """The recommended replica count, and its source."""
    if role not in snapshot.desired.autoscaled:
        return snapshot.desired.scale.roles[role].initial, "spec"
    by = (word for kind, word in _SCALERS.items() if snapshot.own(snapshot.role_key(kind, role)) is not None)
    return recommended(snapshot)[role], next(by, "no scaler")


def gpus(moment: Moment) -> str:
    """GPUs of all P and D pods: existing, terminating and requested."""
    allocation = moment.plan.allocation
    if allocation.budget is None:
        return f"{allocation.used}, without a limit"
    return f"{allocation.used} of {allocation.budget} (spec.autoscaling.gpuBudget)"


def attained(moment: Moment) -> str:
    """What the operator last reported of spec.objectives; empty without any."""
    found = find(moment.snapshot.previous.conditions, OBJECTIVES_MET)
    return "" if found is None else plain(f"{found.reason}. {found.message}", _LONGEST)


def traffic_switch(moment: Moment) -> list[str]:
    """State of the roll-out, and conditions of the traffic switch."""
    snapshot, rollout, target = moment.snapshot, moment.plan.rollout, moment.snapshot.desired.revision
    if rollout.complete:
        return [f"none is under way: every router pod sends requests to revision {target}"]
    if snapshot.desired.replicas[Role.ROUTER] == 0:
        return ["spec.router.replicas is 0: no revision gets requests"]
    if not rollout.serving:
        first = f"under way: revision {target} is to serve first"
    elif rollout.serving == target:
        first = f"almost done: revision {target} serves, but not all router pods are up to date"
    else:
        first = f"under way: from revision {plain(rollout.serving, 63)} to {target}"
    return [first, *(plain(line, _LONGEST) for line in _waits(snapshot, target))]


def _waits(snapshot: Snapshot, target: str) -> Iterator[str]:
    router = snapshot.router
    if router is None:
        yield "The router Deployment does not exist yet."
    elif router.revision != target:
        yield f"The router Deployment still has the template of revision {router.revision}."
    elif not router.observed:
        yield "Kubernetes has not handled the last change of the router Deployment yet."
    else:
        needed = " and a ready ".join(ROLE_WORDS[role] for role in snapshot.desired.roles)
        yield (
            f"Router pods: {router.updated} of {router.desired} have the new template, {router.available} of "
            f"{router.replicas} are available. One needs a ready {needed} pod of its revision."
        )
    workloads = snapshot.leading_workloads(target)
    for role in snapshot.desired.roles:
        live = workloads.get(role)
        if live is None:
            yield f"{ROLE_WORDS[role]}: there is no workload of revision {target} yet."
        elif live.ready < max(live.desired, 1):
            ready = f"{live.ready} of {live.desired} pods of revision {target} are ready."
            yield f"{ROLE_WORDS[role]}: {ready} {_problem(snapshot, role)}".rstrip()


def _problem(snapshot: Snapshot, role: Role) -> str:
    """Why a pod of the target revision is not ready, with a remedy."""
    target = snapshot.desired.revision
    pods = (pod for pod in snapshot.pods if pod.role is role and pod.revision == target and not pod.gone)
    found = most_severe(pods, snapshot.owner.namespace)
    return found.message if found is not None else ""
