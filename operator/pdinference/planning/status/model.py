"""The conditions of the model: whether it is there, and whether it fits into memory."""

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Status
from pdinference.api.v1alpha1.conditions import FINAL_REASONS, MODEL_READY, NO_MODEL, UNSCHEDULABLE, Truth
from pdinference.planning.conditions import ConditionResult, find
from pdinference.planning.memory import MemoryVerdict
from pdinference.planning.model_report import BEGINS, CHECKED, NOT_CHECKED, UNDER_WAY, ModelView, model_diagnosis
from pdinference.planning.pod_diagnosis import Diagnosis, most_severe
from pdinference.planning.status.inputs import StatusInputs

_FITS: dict[bool | None, tuple[Truth, str]] = {
    True: ("True", "Fits"),
    False: ("False", "DoesNotFit"),
    None: ("Unknown", "NotKnown"),
}


def model_ready(inputs: StatusInputs, previous: Status) -> ConditionResult | None:
    """ModelReady, as far as Job and pods know; None where nothing looks at the model."""
    job = inputs.model
    if job is not None and not job.done:
        return ConditionResult("False", *job_diagnosis(inputs, job, previous))
    pods = [pod for role in ENGINE_ROLES for pod in inputs.current_pods(role)]
    without = (pod for pod in pods if pod.problem is not None and pod.problem.reason == NO_MODEL)
    if (found := most_severe(without, inputs.namespace)) is not None:
        return ConditionResult("False", *found)
    if job is not None:
        return ConditionResult("True", *job_diagnosis(inputs, job, previous))
    if not inputs.verifies_model:
        return None
    if any(pod.has_model for pod in pods):
        return ConditionResult(
            "True", CHECKED, "Pods looked at the model before vLLM started, and found nothing wrong."
        )
    return ConditionResult(
        "Unknown", NOT_CHECKED, "There is no pod of the current revision that has looked at the model."
    )


def job_diagnosis(inputs: StatusInputs, model: ModelView, previous: Status) -> Diagnosis:
    """How far the Job for the model is, or what is wrong with it."""
    if (failure := model_failure(inputs, previous)) is not None:
        return failure
    pods = [pod for pod in inputs.pods if pod.role is Role.MODEL and not pod.gone]
    return model_diagnosis(model, pods, inputs.namespace)


def model_failure(inputs: StatusInputs, previous: Status) -> Diagnosis | None:
    """Why the Job fails; None while it may succeed.

    The kubelet starts it again and again. While it begins, the failure of the last try still holds, or the status would
    change twice with each try.
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
