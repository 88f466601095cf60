"""The status of a resource whose stored spec is invalid.

Its children are left alone, but they go on: pods come and go, and HPAs decide. So what can be seen is told as ever.
"""

from collections.abc import Mapping
from datetime import datetime

from pdinference.api.names import SERVING_ROLES, Role
from pdinference.api.v1alpha1 import RolesStatus, RoleStatus, Status
from pdinference.api.v1alpha1.conditions import AUTOSCALING, INVALID, MEMORY_FITS, READY, RECONCILING
from pdinference.planning import conditions
from pdinference.planning.conditions import Judgement
from pdinference.planning.status.model import memory_fits
from pdinference.planning.status.problems import role_problem
from pdinference.planning.status.progressing import kstatus
from pdinference.planning.status.ready import answered
from pdinference.planning.status.roles import role_ready, role_status
from pdinference.planning.status.situation import Situation
from pdinference.planning.troubles import Advice


def invalid_status(situation: Situation, message: str, *, previous: Status, now: datetime) -> Status:
    """What the spec breaks, and how that is which an earlier spec asked for.

    Args:
        situation: What is there, of the revision that was asked for last.
        message: What the spec breaks.
        previous: The status so far.
        now: The time.
    """
    roles = {role: role_status(situation, role) for role in SERVING_ROLES if role in situation.workloads}
    problems = {role: _problem(situation, role, counts, previous) for role, counts in roles.items()}
    judgements = {
        READY: _ready(situation, problems),
        **{conditions.ROLE_CONDITIONS[role]: role_ready(role, roles[role], found) for role, found in problems.items()},
        **kstatus(Judgement("False", INVALID, message)),
        MEMORY_FITS: memory_fits(situation.memory),
        AUTOSCALING: _autoscaling(previous),
    }
    fresh = conditions.written(judgements, generation=situation.generation, now=now)
    told = {condition.type for condition in fresh} | {RECONCILING}
    kept = [old for old in previous.conditions if old.type not in told]
    counts = {role.value: roles.get(role) or getattr(previous.roles, role) for role in SERVING_ROLES}
    return previous.model_copy(
        update={
            "observed_generation": situation.generation,
            "serving_revision": situation.rollout.serving,
            "plan": situation.memory.status,
            "roles": RolesStatus(**counts),
            "last_progress_time": None,
            "conditions": conditions.carry_over([*fresh, *kept], previous.conditions),
        }
    )


def _problem(situation: Situation, role: Role, counts: RoleStatus, previous: Status) -> Advice | None:
    if counts.desired:
        return role_problem(situation, role, counts, previous)
    return Advice(INVALID, f"{conditions.ROLE_WORDS[role]}: has no pods, and none start before the spec is corrected.")


def _ready(situation: Situation, problems: Mapping[Role, Advice | None]) -> Judgement:
    if (judged := answered(situation)) is not None:
        return judged
    if not situation.workloads:
        return Judgement("False", "NotServing", "The spec is invalid; nothing was created.")
    problem = next((problem for problem in problems.values() if problem is not None), None)
    return Judgement("False", *(problem or Advice("NotServing", "No pod is ready to answer requests.")))


def _autoscaling(previous: Status) -> Judgement | None:
    """The replica counts stay as they are."""
    if any(old.type == AUTOSCALING for old in previous.conditions):
        return Judgement("Unknown", INVALID, "Nothing scales P and D before the spec is corrected.")
    return None
