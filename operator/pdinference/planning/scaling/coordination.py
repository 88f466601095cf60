"""P and D together: what `spec.autoscaling` allows each of them now, given all that is there.

Decided anew in every reconcile, from live objects alone. What cannot be seen in them, by which earlier maximum an HPA
may still act, the HPA itself carries in an annotation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import AutoscalerState
from pdinference.planning.scaling.bounds import Cause, Range, bounds
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.grants import open_grants
from pdinference.planning.scaling.limits import Limits
from pdinference.planning.scaling.side_by_side import SideBySide

P, D = Role.PARAMETER, Role.DECODE


@dataclass(frozen=True, slots=True)
class Coordination:
    """What P and D may have now.

    Attributes:
        ranges: Of each role: `minReplicas` and `maxReplicas` of its HPA.
        most: Pods of the target revision that there may be where the operator counts them.
        used: GPUs of all pods.
        budget: GPUs that there may be; None for any number.
        held: Why a new pair is not created, in plain English; empty when it may be.
        settled_at: When the last HPA forgets an earlier maximum; None when all have.
    """

    ranges: Mapping[Role, Range] = field(default_factory=dict)
    most: Mapping[Role, int] = field(default_factory=dict)
    used: int = 0
    budget: int | None = None
    held: str = ""
    settled_at: datetime | None = None


def coordinate(
    limits: Limits | None,
    fleet: Fleet,
    hpas: Mapping[Role, AutoscalerState | None],
    *,
    target: str,
    followed: str,
    now: datetime,
) -> Coordination:
    """What each role may have.

    Args:
        limits: What the spec says; None when it limits nothing.
        fleet: What is there.
        hpas: The live HPA of each role that has one.
        target: The revision that the spec asks for.
        followed: The revision that HPAs follow; empty for none.
        now: The time.
    """
    if limits is None:
        return Coordination()
    there = SideBySide(limits, fleet, hpas, target=target, followed=followed, now=now)
    return Coordination(
        ranges=_ranges(there),
        most=_most(there),
        used=fleet.used,
        budget=limits.budget,
        held=_why_held(there),
        settled_at=max((grant.until for grant in open_grants(hpas.values(), now)), default=None),
    )


def _why_held(there: SideBySide) -> str:
    """Why the pods of the target revision cannot come yet; empty when they are there or can."""
    budget = there.limits.budget
    if not there.to_come or budget is None:
        return ""
    if not there.has_room:
        return _too_little(there, budget)
    if there.reachable(with_first=True) > budget:
        return "The new pair starts when the HPAs act by their new maximums, within a minute or so."
    return ""


def _ranges(there: SideBySide) -> dict[Role, Range]:
    """What HPAs may do."""
    p, d = there.standings(with_target=there.has_room)
    if there.limits.budget is None:
        return dict(zip(ENGINE_ROLES, bounds(p, d, ratio=there.limits.ratio), strict=True))
    room = there.limits.budget - there.fixed()
    if room < p.gpus * p.minimum + d.gpus * d.minimum:
        return _as_they_are(there)
    found = dict(zip(ENGINE_ROLES, bounds(p, d, ratio=there.limits.ratio, budget=room), strict=True))
    now = _as_they_are(there)
    if there.fleet.wanted > there.limits.budget or all(found[r].maximum >= now[r].maximum for r in found):
        return found
    # No pod has to go for the sake of those that leave.
    kept = {role: replace(found[role], maximum=max(found[role].maximum, now[role].maximum)) for role in found}
    return kept if p.gpus * kept[P].maximum + d.gpus * kept[D].maximum <= room else now


def _as_they_are(there: SideBySide) -> dict[Role, Range]:
    """Neither role gets more pods, until those that leave are gone."""
    found = {}
    for role, counts in there.limits.counts.items():
        count = there.fleet.instances(role, there.followed or there.target)
        most = max(1, min(count, counts.maximum))
        found[role] = Range(max(1, min(counts.minimum, most)), most, Cause.GPU_BUDGET)
    return found


def _most(there: SideBySide) -> dict[Role, int]:
    """How many pods of the target revision there may be, whatever HPAs do meanwhile."""
    if there.limits.budget is None:
        return {role: counts.maximum for role, counts in there.limits.counts.items()}
    spare = there.limits.budget - there.reachable(with_first=False)
    kept_for_d = _short_of_minimum(there, D) * there.limits.gpus[D]
    found = {}
    for role in ENGINE_ROLES:
        live, gpus = there.fleet.instances(role, there.target), there.limits.gpus[role]
        if not there.fleet.has(role, there.target):
            found[role] = there.first[role]
            continue
        free = spare - (kept_for_d if role is P else 0)
        more = max(0, free) // gpus if gpus else there.limits.counts[role].maximum
        found[role] = live + min(more, max(0, there.limits.counts[role].maximum - live))
        spare -= (found[role] - live) * gpus
    return found


def _short_of_minimum(there: SideBySide, role: Role) -> int:
    """Pods that a role lacks, which the other must not take the GPUs from (both start together after sleep)."""
    if not there.fleet.has(role, there.target):
        return 0
    return max(0, there.limits.counts[role].minimum - there.fleet.instances(role, there.target))


def _too_little(there: SideBySide, budget: int) -> str:
    needed = there.needed()
    text = (
        f"The new pair needs {there.first_gpus} GPUs, {there.fleet.used} are in use, and "
        f"spec.autoscaling.gpuBudget is {budget}."
    )
    if there.limits.recreates or not there.followed:
        return f"{text} It starts when the pods that are still there are gone."
    return (
        f"{text} Raise it to {needed}, at least until the roll-out is over, or use rollout.strategy Recreate, "
        "which ends the old pair first."
    )
