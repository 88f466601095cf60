"""What keeps a role from being as wanted, and which of these problems is to be solved first."""

from collections.abc import Iterable, Mapping, Sequence

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import RoleStatus
from pdinference.planning import troubles
from pdinference.planning.conditions import ASLEEP, ROLE_WORDS
from pdinference.planning.observed import Failure, WorkloadState
from pdinference.planning.scaling.limited import LimitReason
from pdinference.planning.status.model import job_advice
from pdinference.planning.status.situation import Situation
from pdinference.planning.troubles import Advice

SCALED_TO_ZERO = "ScaledToZero"
"""Reason of a role for which the spec wants no pods."""


def first_problem(failures: Sequence[Failure], problems: Mapping[Role, Advice | None]) -> Advice | None:
    """The problem to solve first: what could not be applied, then P, then D, then the router, which needs both."""
    if failures:
        return Advice(failures[0].reason, listed(failures))
    engine = [problem for role in ENGINE_ROLES if (problem := problems[role]) is not None]
    for_good = [problem for problem in engine if problem.reason != ASLEEP]
    return next(iter([*for_good, *engine]), problems[Role.ROUTER])


def listed(failures: Iterable[Failure]) -> str:
    """All failures in one message, the same whatever the order in which requests happened to fail."""
    ordered = sorted(failures, key=lambda failure: (failure.kind, failure.name))
    return " ".join(map(str, ordered))


def role_problem(situation: Situation, role: Role, counts: RoleStatus) -> Advice | None:
    """Why the role is not as wanted; None when it is."""
    if counts.desired == 0:
        return _without_pods(situation, role)
    if counts.ready >= counts.desired:
        return None
    workload = situation.workloads.get(role)
    if (waits := _held_back(situation, role, counts, workload)) is not None:
        return waits
    if workload is not None and workload.failure:
        return Advice("PodsNotCreated", f"{ROLE_WORDS[role]}: pods cannot be created: {workload.failure}")
    found = troubles.worst(situation.current_pods(role), situation.namespace)
    count = f"{ROLE_WORDS[role]}: {counts.ready} of {counts.desired} pods ready."
    if found is not None:
        return Advice(found.reason, f"{count} {found.message}")
    return Advice("Starting", f"{count} {_missing(situation, role, workload)}")


def _held_back(situation: Situation, role: Role, counts: RoleStatus, workload: WorkloadState | None) -> Advice | None:
    """The pods of a role do not come yet, or not all, because we wait for something; None when we do not."""
    allocation, word = situation.allocation, ROLE_WORDS[role]
    if role not in ENGINE_ROLES:
        return None
    if workload is None and situation.model and situation.model.awaited:
        model = job_advice(situation, situation.model)
        return Advice("ModelNotReady", f"{word}: waits for the model. {model.message}")
    if workload is None and allocation.blocked:
        return Advice(LimitReason.GPU_BUDGET, f"{word}: {allocation.blocked}")
    if workload is not None and allocation.budget is not None and workload.desired < counts.desired:
        why = f"spec.autoscaling.gpuBudget leaves GPUs for {workload.desired} until other pods let go of theirs."
        return Advice(LimitReason.GPU_BUDGET, f"{word}: {counts.ready} of {counts.desired} pods ready; {why}")
    return None


def _without_pods(situation: Situation, role: Role) -> Advice:
    """Why no pod is wanted."""
    if situation.asleep and role in ENGINE_ROLES and situation.desired[role] > 0:
        then = "; the next request starts its pods" if situation.heard else ""
        return Advice(ASLEEP, f"{ROLE_WORDS[role]}: asleep, because nobody asks{then}.")
    if situation.desired[role] > 0 and situation.allocation.budget is not None:
        why = "spec.autoscaling.gpuBudget leaves no GPUs until other pods let go of theirs."
        return Advice(LimitReason.GPU_BUDGET, f"{ROLE_WORDS[role]}: {why}")
    return Advice(SCALED_TO_ZERO, f"{ROLE_WORDS[role]}: spec.{role}.replicas is 0, so nothing runs; raise it to serve.")


def _missing(situation: Situation, role: Role, workload: WorkloadState | None) -> str:
    """There are fewer pods than wanted and none of them is in trouble."""
    if workload is None:
        return "The workload does not exist yet."
    kind = "statefulset" if role is Role.PARAMETER else "deployment"
    return (
        "Waiting for pods to be created; if this lasts, see "
        f"`kubectl describe -n {situation.namespace} {kind} {workload.name}`."
    )
