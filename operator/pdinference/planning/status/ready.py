"""The condition Ready: whether requests are answered.

Tests: tests/planning/test_status.py
"""

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1.conditions import AT_REST
from pdinference.planning.condition_changes import ASLEEP, ConditionResult
from pdinference.planning.pod_diagnosis import Diagnosis
from pdinference.planning.status.inputs import StatusInputs


def ready(
    inputs: StatusInputs, problem: Diagnosis | None, progress: ConditionResult, start_seconds: int | None
) -> ConditionResult:
    """Whether requests are answered; the problem to solve first if not.

    Args:
        inputs: The observed state.
        problem: The problem to solve first; None without one.
        progress: The condition Progressing, which the message must not contradict.
        start_seconds: How long P and D usually take to start; None if that is not known.
    """
    if not inputs.reachable:
        return ConditionResult("False", *(problem or _without_service(inputs)))
    router = inputs.workloads.get(Role.ROUTER)
    if inputs.asleep and not inputs.stopped and router is not None and router.ready > 0:
        return _asleep(inputs, start_seconds)
    if inputs.answers:
        return _answered(inputs, progress)
    return ConditionResult("False", *(problem or Diagnosis("Starting", "No router pod is ready yet.")))


def _without_service(inputs: StatusInputs) -> Diagnosis:
    return Diagnosis(
        "Starting",
        f"Service {names.router_service(inputs.name)} does not exist yet, or is being deleted. If this takes long, see "
        f"`kubectl get -n {inputs.namespace} service {names.router_service(inputs.name)} -o yaml`: finalizers keep it.",
    )


def _answered(inputs: StatusInputs, progress: ConditionResult) -> ConditionResult:
    count = inputs.workloads[Role.ROUTER].ready
    message = f"Requests are answered; {count} router pod{'' if count == 1 else 's'} ready."
    if inputs.without_parameter:
        message += " D computes the prompts, because no P pod is ready."
    return ConditionResult("True", "Serving", message + _unfinished(inputs, progress))


def _unfinished(inputs: StatusInputs, progress: ConditionResult) -> str:
    """What else the counts of the roles show: they are those of the target revision."""
    if progress.reason in AT_REST:
        return ""
    serving, target = inputs.rollout.serving, inputs.desired.revision
    if serving not in {"", target}:
        state = "is rolling out" if progress.status == "True" else "cannot roll out"
        return f" They go to revision {serving}; revision {target} {state} ({progress.reason})."
    return f" Not everything is as in the spec ({progress.reason}); the condition Progressing says why."


def _asleep(inputs: StatusInputs, start_seconds: int | None) -> ConditionResult:
    if inputs.observations.activity is not None:
        message = "P and D have no pods because no requests arrived. The next request starts them and waits for them."
        message += f" Starts took {start_seconds} s lately." if start_seconds is not None else ""
        return ConditionResult("True", ASLEEP, message)
    message = (
        "P and D have no pods, and some router pods do not report whether requests wait there. Such requests do not "
        f"start P and D. Check that no NetworkPolicy blocks port {names.ROUTER_STATE_PORT}."
    )
    return ConditionResult("Unknown", ASLEEP, message)
