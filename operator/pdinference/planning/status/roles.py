"""The counts of each role in the status, and the role's condition.

Tests: tests/planning/test_status.py, tests/planning/test_host_local.py
"""

from collections.abc import Sequence

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import RoleStatus
from pdinference.planning.condition_changes import ROLE_WORDS, ConditionResult
from pdinference.planning.observed import PodSummary
from pdinference.planning.pod_diagnosis import Diagnosis
from pdinference.planning.scaling.condition import scaling_text
from pdinference.planning.status.inputs import StatusInputs


def role_status(inputs: StatusInputs, role: Role) -> RoleStatus:
    """The counts of a role.

    An instance of several nodes counts once, and a pod with several engines of D too. Of P in such pods, engines count.
    """
    pods = [pod for pod in inputs.current_pods(role) if pod.node_rank == 0 and not pod.terminating]
    if role is Role.PARAMETER and inputs.shares_pods:
        return _of_engines(pods, inputs.desired_shared_parameters)
    every, unready = {pod.name for pod in pods}, {pod.name for pod in pods if not pod.ready}
    ready, desired = len(every - unready), inputs.desired_replicas(role)
    hpa = inputs.autoscalers.get(role)
    selector = names.role_selector(inputs.name, role, inputs.desired.revision)
    return RoleStatus(
        replicas=len(every),
        ready=ready,
        desired=desired,
        summary=f"{ready}/{desired}",
        selector=names.selector_text(selector),
        scaling=scaling_text(hpa) if hpa is not None else "",
    )


def _of_engines(engines: Sequence[PodSummary], desired: int) -> RoleStatus:
    """The counts of a role without pods of its own. Nothing scales it, so it has no selector."""
    ready = sum(engine.ready for engine in engines)
    return RoleStatus(replicas=len(engines), ready=ready, desired=desired, summary=f"{ready}/{desired}")


def role_ready(inputs: StatusInputs, role: Role, counts: RoleStatus, problem: Diagnosis | None) -> ConditionResult:
    """ParameterReady, DecodeReady or RouterReady."""
    if problem is not None:
        return ConditionResult("False", *problem)
    if role not in inputs.desired.replicas and inputs.shares_pods:
        said = f"P: {counts.ready} of {counts.desired} engines ready, in the pods of D (spec.transfer.path)."
        return ConditionResult("True", "HostLocal", said)
    if role not in inputs.desired.replicas:
        return ConditionResult("True", "Aggregated", "spec.mode is Aggregated: D computes the prompts, without P pods.")
    return ConditionResult("True", "AllReady", f"{ROLE_WORDS[role]}: {counts.ready} of {counts.desired} pods ready.")
