"""The problems that keep roles from their desired state, and which of them to solve first.

Tests: tests/planning/test_status.py, tests/planning/test_progress.py
"""

from collections.abc import Iterable, Mapping, Sequence

from pdinference.api.names import ENGINE_ROLES, SERVING_ROLES, Role
from pdinference.api.v1alpha1 import RoleStatus, Status
from pdinference.api.v1alpha1.conditions import CRASH_LOOPING, FINAL_REASONS, PODS_NOT_CREATED
from pdinference.planning import pod_diagnosis
from pdinference.planning.condition_changes import ASLEEP, ROLE_CONDITIONS, ROLE_WORDS, find
from pdinference.planning.observed import Failure, WorkloadState
from pdinference.planning.pod_diagnosis import Diagnosis
from pdinference.planning.scaling.limited import LimitReason
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.status.model import job_diagnosis
from pdinference.planning.status.roles import role_status

SCALED_TO_ZERO = "ScaledToZero"
"""Reason of a role for which the spec wants no pods."""

MODEL_NOT_READY = "ModelNotReady"
"""Reason of a role whose pods wait for the download of the model."""


def first_problem(failures: Sequence[Failure], problems: Mapping[Role, Diagnosis | None]) -> Diagnosis | None:
    """The problem to solve first: failed writes, then problems that waiting does not solve, then P, D and the router.

    The router comes after P and D because it depends on them, unless they are asleep, which is no problem.
    """
    if failures:
        return Diagnosis(failures[0].reason, listed(failures))
    found = [problem for role in SERVING_ROLES if (problem := problems[role]) is not None]
    final = [problem for problem in found if problem.reason in FINAL_REASONS]
    awake = [problem for problem in found if problem.reason != ASLEEP]
    return next(iter([*final, *awake, *found]), None)


def listed(failures: Iterable[Failure]) -> str:
    """All failures in one message, sorted, so that the message does not depend on the order of requests."""
    ordered = sorted(failures, key=lambda failure: (failure.kind, failure.name))
    return " ".join(map(str, ordered))


def role_problem(inputs: StatusInputs, role: Role, counts: RoleStatus, previous: Status) -> Diagnosis | None:
    """Why the role has too few ready pods; None when it has enough, or the mode does not have it."""
    if role not in inputs.desired.replicas:
        return _of_shared_pods(inputs, role, counts, previous) if inputs.shares_pods else None
    if counts.desired == 0:
        return _without_pods(inputs, role)
    if counts.ready >= counts.desired:
        return None
    workload = inputs.workloads.get(role)
    if (waits := _held_back(inputs, role, counts, workload, previous)) is not None:
        return waits
    if workload is not None and workload.failure:
        return Diagnosis(PODS_NOT_CREATED, f"{ROLE_WORDS[role]}: pods cannot be created: {workload.failure}")
    return _of_pods(inputs, role, counts, previous)


def _of_shared_pods(inputs: StatusInputs, role: Role, counts: RoleStatus, previous: Status) -> Diagnosis | None:
    """Why P has too few ready engines in the pods of D. Why there are too few pods, D says."""
    if counts.ready >= counts.desired > 0:
        return None
    if any(not pod.ready and not pod.terminating for pod in inputs.current_pods(role)):
        return _of_pods(inputs, role, counts, previous)
    return role_problem(inputs, Role.DECODE, role_status(inputs, Role.DECODE), previous)


def _of_pods(inputs: StatusInputs, role: Role, counts: RoleStatus, previous: Status) -> Diagnosis:
    """The diagnosis of the pods that are not ready."""
    found = pod_diagnosis.most_severe(inputs.current_pods(role), inputs.namespace, resource=inputs.name)
    looping = _still_looping(inputs, role, counts, previous)
    if looping is not None and (found is None or found.reason not in FINAL_REASONS):
        return looping
    what = "pods" if role in inputs.desired.replicas else "engines"
    count = f"{ROLE_WORDS[role]}: {counts.ready} of {counts.desired} {what} ready."
    if found is not None:
        return Diagnosis(found.reason, f"{count} {found.message}")
    return Diagnosis("Starting", f"{count} {_missing(inputs, role, inputs.workloads.get(role))}")


def _still_looping(inputs: StatusInputs, role: Role, counts: RoleStatus, previous: Status) -> Diagnosis | None:
    """The crash loop in the previous status, as long as no pod of the role became ready; None for no loop.

    A crashing container runs for a while between two crashes. Without this, the conditions would change each time.
    """
    before = find(previous.conditions, ROLE_CONDITIONS[role])
    if before is None or before.reason != CRASH_LOOPING or previous.revision != inputs.desired.revision:
        return None
    seen: RoleStatus = getattr(previous.roles, role)
    unwell = [pod for pod in inputs.current_pods(role) if not pod.ready and not pod.terminating]
    if (seen.ready, seen.desired) != (counts.ready, counts.desired) or not any(pod.restarted for pod in unwell):
        return None
    return Diagnosis(before.reason, before.message)


def _held_back(
    inputs: StatusInputs, role: Role, counts: RoleStatus, workload: WorkloadState | None, previous: Status
) -> Diagnosis | None:
    """Why the operator does not create all pods of a role yet; None when it does."""
    allocation, word = inputs.allocation, ROLE_WORDS[role]
    if role not in ENGINE_ROLES:
        return None
    if workload is None and inputs.model and inputs.model.awaited:
        model = job_diagnosis(inputs, inputs.model, previous)
        return Diagnosis(MODEL_NOT_READY, f"{word}: waiting for the model. {model.message}")
    if workload is None and allocation.blocked:
        return Diagnosis(LimitReason.GPU_BUDGET, f"{word}: {allocation.blocked}")
    if workload is not None and allocation.budget is not None and workload.desired < counts.desired:
        room = f"GPUs for {workload.desired}" if workload.desired else "no GPUs"
        why = f"spec.autoscaling.gpuBudget leaves {room} until other pods have ended."
        return Diagnosis(LimitReason.GPU_BUDGET, f"{word}: {counts.ready} of {counts.desired} pods ready; {why}")
    return None


def _without_pods(inputs: StatusInputs, role: Role) -> Diagnosis:
    """Why the role has a desired count of zero."""
    if inputs.asleep and role in ENGINE_ROLES and inputs.desired.replicas[role] > 0:
        then = " The next request starts its pods." if inputs.observations.activity is not None else ""
        return Diagnosis(ASLEEP, f"{ROLE_WORDS[role]}: no pods because no requests arrived.{then}")
    if inputs.desired.replicas[role] > 0 and inputs.allocation.budget is not None:
        why = "spec.autoscaling.gpuBudget leaves no GPUs until other pods have ended."
        return Diagnosis(LimitReason.GPU_BUDGET, f"{ROLE_WORDS[role]}: {why}")
    return Diagnosis(SCALED_TO_ZERO, f"{ROLE_WORDS[role]}: spec.{role}.replicas is 0. Raise it to serve requests.")


def _missing(inputs: StatusInputs, role: Role, workload: WorkloadState | None) -> str:
    """The message while pods are missing and none has a problem."""
    if workload is None:
        return "The workload does not exist yet."
    return (
        "Waiting for pods to be created. If this takes long, see "
        f"`kubectl describe -n {inputs.namespace} {workload.kind.lower()} {workload.name}`."
    )
