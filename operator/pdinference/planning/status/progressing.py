"""The condition Progressing: whether the operator still works towards the spec."""

from pdinference.api.names import Role
from pdinference.planning.conditions import ASLEEP, INVALID, Judgement
from pdinference.planning.scaling.limited import LimitReason
from pdinference.planning.status.problems import SCALED_TO_ZERO, listed
from pdinference.planning.status.situation import Situation
from pdinference.planning.troubles import Advice


def progressing(situation: Situation, problem: Advice | None) -> Judgement:
    """What is being done, or what stops it until a person acts."""
    if situation.invalid:
        return Judgement("False", INVALID, situation.invalid)
    lasting = [failure for failure in situation.failures if not failure.transient]
    if lasting:
        return Judgement("False", lasting[0].reason, listed(lasting))
    if problem is not None and problem.reason not in {SCALED_TO_ZERO, ASLEEP}:
        rolled_out = _rolled_out(situation)
        done = (
            f"Revision {situation.target} is rolled out." if rolled_out else f"Rolling out revision {situation.target}."
        )
        message = f"{done} {problem.message}"
        if situation.rollout.serving not in {"", situation.target} and situation.answers:
            message += f" Revision {situation.rollout.serving} keeps answering requests until then."
        if problem.reason == LimitReason.GPU_BUDGET:
            return Judgement("True", LimitReason.GPU_BUDGET, message)
        return Judgement("True", "NotAllReady" if rolled_out else "RollingOut", message)
    if not situation.rollout.complete and situation.desired[Role.ROUTER] > 0 and problem is None:
        return Judgement("True", "RollingOut", f"Traffic moves to revision {situation.target}.")
    return Judgement("False", "RolloutComplete", f"Revision {situation.target} is rolled out.")


def _rolled_out(situation: Situation) -> bool:
    """Whether requests go to the current revision and to no other, so that only pods are missing."""
    router = situation.workloads.get(Role.ROUTER)
    return (
        situation.rollout.serving == situation.target
        and router is not None
        and router.observed
        and router.revision == situation.target
        and router.replicas == router.updated == router.desired
    )
