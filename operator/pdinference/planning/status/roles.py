"""The counts of each role in the status, and the role's condition."""

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import RoleStatus
from pdinference.planning.condition_changes import ROLE_WORDS, ConditionResult
from pdinference.planning.pod_diagnosis import Diagnosis
from pdinference.planning.scaling.condition import scaling_text
from pdinference.planning.status.inputs import StatusInputs


def role_status(inputs: StatusInputs, role: Role) -> RoleStatus:
    """The counts of a role; an instance of several nodes counts once."""
    pods = [pod for pod in inputs.current_pods(role) if pod.node_rank == 0 and not pod.terminating]
    ready = sum(pod.ready for pod in pods)
    desired = inputs.desired_replicas(role)
    hpa = inputs.autoscalers.get(role)
    selector = names.role_selector(inputs.name, role, inputs.target)
    return RoleStatus(
        replicas=len(pods),
        ready=ready,
        desired=desired,
        summary=f"{ready}/{desired}",
        selector=names.selector_text(selector),
        scaling=scaling_text(hpa) if hpa is not None else "",
    )


def role_ready(inputs: StatusInputs, role: Role, counts: RoleStatus, problem: Diagnosis | None) -> ConditionResult:
    """ParameterReady, DecodeReady or RouterReady."""
    if role not in inputs.desired and inputs.transfer_path is not None and inputs.transfer_path.host_local:
        return ConditionResult("True", "HostLocal", "P runs in the pods of D (spec.transfer.path): see DecodeReady.")
    if role not in inputs.desired:
        return ConditionResult("True", "Aggregated", "spec.mode is Aggregated: D computes the prompts, without P pods.")
    if problem is not None:
        return ConditionResult("False", *problem)
    return ConditionResult("True", "AllReady", f"{ROLE_WORDS[role]}: {counts.ready} of {counts.desired} pods ready.")
