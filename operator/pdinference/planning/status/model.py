"""The conditions ModelReady and MemoryFits.

Tests: tests/planning/test_model_report.py, tests/planning/test_status.py
"""

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.conditions import FINAL_REASONS, MODEL_READY, NO_MODEL, UNSCHEDULABLE, Truth
from pdinference.memory import MemoryVerdict
from pdinference.planning.condition_changes import ConditionResult, find
from pdinference.planning.model_report import BEGINS, CHECKED, NOT_CHECKED, UNDER_WAY, ModelView, model_diagnosis
from pdinference.planning.pod_diagnosis import Diagnosis, most_severe
from pdinference.planning.status.inputs import StatusInputs

_FITS: dict[bool | None, tuple[Truth, str]] = {
    True: ("True", "Fits"),
    False: ("False", "DoesNotFit"),
    None: ("Unknown", "NotKnown"),
}


def model_ready(inputs: StatusInputs, previous: Status) -> ConditionResult | None:
    """ModelReady, from the Job and the pods; None where neither checks the model."""
    job = inputs.model
    if job is not None and not job.done:
        return ConditionResult("False", *job_diagnosis(inputs, job, previous))
    pods = [pod for role in ENGINE_ROLES for pod in inputs.current_pods(role)]
    without = (pod for pod in pods if pod.problem is not None and pod.problem.reason == NO_MODEL)
    if (found := most_severe(without, inputs.namespace)) is not None:
        return ConditionResult("False", *found)
    if job is not None:
        return ConditionResult("True", *job_diagnosis(inputs, job, previous))
    if not inputs.desired.verifies_model:
        return None
    if any(pod.has_model for pod in pods):
        return ConditionResult("True", CHECKED, "Pods checked the model before vLLM started, and found it complete.")
    return ConditionResult("Unknown", NOT_CHECKED, "No pod of the current revision has checked the model yet.")


def job_diagnosis(inputs: StatusInputs, model: ModelView, previous: Status) -> Diagnosis:
    """The progress of the Job for the model, or its problem."""
    if (failure := model_failure(inputs, previous)) is not None:
        return failure
    pods = [pod for pod in inputs.pods if pod.role is Role.MODEL and not pod.gone]
    return model_diagnosis(model, pods, inputs.namespace)


def model_failure(inputs: StatusInputs, previous: Status) -> Diagnosis | None:
    """Why the Job fails; None while it may succeed.

    The kubelet restarts it. While an attempt begins, the failure of the previous one is kept, so that the status does
    not change twice with each attempt.
    """
    job = inputs.model
    if job is None or job.done:
        return None
    if job.failed:
        return model_diagnosis(job, (), inputs.namespace)
    before = find(previous.conditions, MODEL_READY)
    if job.phase not in BEGINS or before is None or previous.observed_generation != inputs.generation:
        return None
    failed = before.status == "False" and before.reason not in UNDER_WAY | FINAL_REASONS | {UNSCHEDULABLE}
    return Diagnosis(before.reason, before.message) if failed else None


def memory_fits(memory: MemoryVerdict) -> ConditionResult:
    """MemoryFits."""
    return ConditionResult(*_FITS[memory.fits], memory.message)
