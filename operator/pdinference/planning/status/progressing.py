"""The conditions Progressing, Reconciling and Stalled: whether a roll-out continues, is complete, or is stuck.

Tests: tests/planning/test_progress.py, tests/planning/test_paused.py
"""

from pdinference.api.names import Role
from pdinference.api.v1alpha1.conditions import (
    AT_REST,
    DEADLINE_EXCEEDED,
    DEADLINE_REASONS,
    FINAL_REASONS,
    INVALID,
    PAUSED,
    PROGRESSING,
    RECONCILING,
    ROLLOUT_COMPLETE,
    STALLED,
)
from pdinference.planning.condition_changes import ASLEEP, ConditionResult
from pdinference.planning.pause import pause_message
from pdinference.planning.pod_diagnosis import Diagnosis
from pdinference.planning.scaling.limited import LimitReason
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.status.problems import MODEL_NOT_READY, SCALED_TO_ZERO, listed

_WITHOUT_PODS = frozenset({SCALED_TO_ZERO, ASLEEP})


def progressing(
    inputs: StatusInputs, problem: Diagnosis | None, *, model_failure: Diagnosis | None, late: bool
) -> ConditionResult:
    """The condition Progressing.

    Args:
        inputs: The observed state.
        problem: The problem to solve first; None without one.
        model_failure: Why the Job for the model fails; None when it does not.
        late: Whether the deadline of progress has passed.
    """
    result = _of_the_spec_in_effect(inputs, problem, model_failure=model_failure, late=late)
    if not inputs.paused:
        return result
    pause = pause_message(inputs.namespace, inputs.name, withheld=inputs.withheld)
    result = result._replace(message=f"{result.message} {pause}")
    if result.reason != ROLLOUT_COMPLETE:
        return result
    return result._replace(status="True" if inputs.withheld else "False", reason=PAUSED)


def _of_the_spec_in_effect(
    inputs: StatusInputs, problem: Diagnosis | None, *, model_failure: Diagnosis | None, late: bool
) -> ConditionResult:
    if inputs.invalid:
        return ConditionResult("False", INVALID, inputs.invalid)
    lasting = [failure for failure in inputs.failures if not failure.transient]
    if lasting:
        return ConditionResult("False", lasting[0].reason, listed(lasting))
    if not unfinished(inputs, problem):
        return ConditionResult("False", ROLLOUT_COMPLETE, f"Revision {inputs.desired.revision} is rolled out.")
    reason = _stuck(problem, model_failure) or (_out_of_time(problem) if late else None)
    if reason is not None:
        return ConditionResult("False", reason, _message(inputs, problem, stuck=True, late=late))
    return ConditionResult("True", _work(inputs, problem), _message(inputs, problem))


def kstatus(result: ConditionResult) -> dict[str, ConditionResult | None]:
    """Progressing, and the conditions that kstatus (Flux, Argo CD, kpt) reads; those exist only while they are True."""
    stalled = result.status == "False" and result.reason not in AT_REST
    return {
        PROGRESSING: result,
        RECONCILING: result if result.status == "True" else None,
        STALLED: result._replace(status="True") if stalled else None,
    }


def unfinished(inputs: StatusInputs, problem: Diagnosis | None) -> bool:
    """Whether the observed state still differs from the spec."""
    if problem is not None:
        return problem.reason not in _WITHOUT_PODS
    return not inputs.rollout.complete and inputs.desired.replicas[Role.ROUTER] > 0


def rolled_out(inputs: StatusInputs) -> bool:
    """Whether all requests go to the target revision, so that at most pods are missing."""
    router = inputs.workloads.get(Role.ROUTER)
    return (
        inputs.rollout.serving == inputs.desired.revision
        and router is not None
        and router.observed
        and router.revision == inputs.desired.revision
        and router.replicas == router.updated == router.desired
    )


def _stuck(problem: Diagnosis | None, model_failure: Diagnosis | None) -> str | None:
    """The reason of a problem that waiting does not solve; None when waiting may solve it."""
    if problem is None:
        return None
    if problem.reason == MODEL_NOT_READY and model_failure is not None:
        return model_failure.reason
    return problem.reason if problem.reason in FINAL_REASONS else None


def _out_of_time(problem: Diagnosis | None) -> str:
    return problem.reason if problem is not None and problem.reason in DEADLINE_REASONS else DEADLINE_EXCEEDED


def _work(inputs: StatusInputs, problem: Diagnosis | None) -> str:
    if problem is not None and problem.reason == LimitReason.GPU_BUDGET:
        return LimitReason.GPU_BUDGET
    return "NotAllReady" if problem is not None and rolled_out(inputs) else "RollingOut"


def _message(inputs: StatusInputs, problem: Diagnosis | None, *, stuck: bool = False, late: bool = False) -> str:
    target, sentences = inputs.desired.revision, []
    if problem is None:
        sentences.append(f"Traffic moves to revision {target}.")
    elif rolled_out(inputs):
        sentences += [f"Revision {target} is rolled out.", problem.message]
    else:
        sentences += [f"{'Cannot roll out' if stuck else 'Rolling out'} revision {target}.", problem.message]
    if late:
        seconds = f"{inputs.desired.progress_deadline.total_seconds():.0f}"
        sentences.append(f"No progress for {seconds} seconds (spec.rollout.progressDeadlineSeconds).")
    if inputs.rollout.serving not in {"", target} and inputs.answers:
        sentences.append(f"Revision {inputs.rollout.serving} keeps answering requests until then.")
    return " ".join(sentences)
