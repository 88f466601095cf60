"""P and D together: what `spec.autoscaling` allows each of them now, given all that is there.

Decided anew in every reconcile, from live objects alone. What cannot be seen in them, by which earlier maximum an HPA
may still act, the HPA itself carries in an annotation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import AutoscalerState, Grant
from pdinference.planning.scaling.bounds import Cause, Range, Standing, bounds, fitted
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.limits import Limits
from pdinference.planning.scaling.wanted import wanted_by

SETTLE: Final = timedelta(seconds=60)
"""How long an HPA may act by what it was told before: four of its controller's rounds. HPAs do not say what they have
seen (Kubernetes 1.34 never sets their observedGeneration)."""

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
    beside = _Beside(limits, fleet, hpas, target=target, followed=followed, now=now)
    return Coordination(
        ranges=beside.ranges(),
        most=beside.most(),
        used=fleet.used,
        budget=limits.budget,
        held=beside.why_held(),
        settled_at=max((grant.until for grant in beside.grants()), default=None),
    )


def grant_for(hpa: AutoscalerState | None, maximum: int, now: datetime, settle: timedelta = SETTLE) -> Grant | None:
    """What an HPA is to carry when it gets this maximum; as it is while the maximum stays."""
    if hpa is None:
        return None
    if maximum >= hpa.maximum:
        return hpa.grant
    until = (now + settle).replace(microsecond=0) + timedelta(seconds=1)
    return Grant(max([hpa.maximum, *(grant.maximum for grant in _open([hpa], now))]), until)


class _Beside:
    """All revisions that there are side by side, and the one that is to come."""

    def __init__(
        self,
        limits: Limits,
        fleet: Fleet,
        hpas: Mapping[Role, AutoscalerState | None],
        *,
        target: str,
        followed: str,
        now: datetime,
    ) -> None:
        self._limits, self._fleet, self._hpas = limits, fleet, hpas
        self._target, self._followed, self._now = target, followed, now
        self._to_come = target not in fleet.revisions
        self._first = self._fitted_first()
        self.has_room = limits.budget is None or not self._to_come or self._needed() <= limits.budget

    def grants(self) -> tuple[Grant, ...]:
        """Earlier maximums that still count."""
        return _open(self._hpas.values(), self._now)

    def why_held(self) -> str:
        """Why the pods of the target revision cannot come yet; empty when they are there or can."""
        budget = self._limits.budget
        if not self._to_come or budget is None:
            return ""
        if not self.has_room:
            return self._too_little(budget)
        if self._reachable(with_first=True) > budget:
            return "The new pair starts when the HPAs act by their new maximums, within a minute or so."
        return ""

    def ranges(self) -> dict[Role, Range]:
        """What HPAs may do."""
        p, d = self._standings(with_target=self.has_room)
        if self._limits.budget is None:
            return dict(zip(ENGINE_ROLES, bounds(p, d, ratio=self._limits.ratio), strict=True))
        room = self._limits.budget - self._fixed()
        if room < p.gpus * p.minimum + d.gpus * d.minimum:
            return self._as_they_are()
        found = dict(zip(ENGINE_ROLES, bounds(p, d, ratio=self._limits.ratio, budget=room), strict=True))
        there = self._as_they_are()
        if self._fleet.wanted > self._limits.budget or all(found[r].maximum >= there[r].maximum for r in found):
            return found
        # No pod has to go for the sake of those that leave.
        kept = {role: replace(found[role], maximum=max(found[role].maximum, there[role].maximum)) for role in found}
        return kept if p.gpus * kept[P].maximum + d.gpus * kept[D].maximum <= room else there

    def _as_they_are(self) -> dict[Role, Range]:
        """Neither role gets more pods, until those that leave are gone."""
        found = {}
        for role, counts in self._limits.counts.items():
            count = self._fleet.instances(role, self._followed or self._target)
            most = max(1, min(count, counts.maximum))
            found[role] = Range(max(1, min(counts.minimum, most)), most, Cause.GPU_BUDGET)
        return found

    def most(self) -> dict[Role, int]:
        """How many pods of the target revision there may be, whatever HPAs do meanwhile."""
        if self._limits.budget is None:
            return {role: counts.maximum for role, counts in self._limits.counts.items()}
        spare = self._limits.budget - self._reachable(with_first=False)
        kept_for_d = self._short_of_minimum(D) * self._limits.gpus[D]
        found = {}
        for role in ENGINE_ROLES:
            live, gpus = self._fleet.instances(role, self._target), self._limits.gpus[role]
            if not self._fleet.has(role, self._target):
                found[role] = self._first[role]
                continue
            free = spare - (kept_for_d if role is P else 0)
            more = max(0, free) // gpus if gpus else self._limits.counts[role].maximum
            found[role] = live + min(more, max(0, self._limits.counts[role].maximum - live))
            spare -= (found[role] - live) * gpus
        return found

    def _short_of_minimum(self, role: Role) -> int:
        """Pods that a role lacks, which the other must not take the GPUs from (both start together after sleep)."""
        if not self._fleet.has(role, self._target):
            return 0
        return max(0, self._limits.counts[role].minimum - self._fleet.instances(role, self._target))

    def _standings(self, *, with_target: bool) -> tuple[Standing, Standing]:
        """How the roles stand, each instance with those of all revisions that have as many."""
        return self._standing(P, with_target), self._standing(D, with_target)

    def _standing(self, role: Role, with_target: bool) -> Standing:
        """The revision that HPAs follow, and the target revision, which is to have as many pods."""
        counts, hpa = self._limits.counts[role], self._hpas.get(role)
        scaled = role in self._limits.scaled
        pair = {self._target, *([self._followed] if scaled else [])} & set(self._fleet.revisions)
        live = {revision: self._fleet.instances(role, revision) for revision in pair}
        gpus = {revision: self._fleet.gpus(role, revision) for revision in pair}
        if with_target and not self._fleet.has(role, self._target):
            live[self._target], gpus[self._target] = self._first[role], self._limits.gpus[role]
        if not scaled:
            if self._target not in live:
                return Standing(0, 0, 0, 0)
            return Standing(live[self._target], *counts.limits, gpus[self._target])
        return Standing(
            max(live.values(), default=0),
            *counts.limits,
            sum(gpus.values()),
            allowed=hpa.maximum if hpa else 0,
            granted=self._granted(role),
            wanted=wanted_by(hpa, live.get(self._followed, 0)) if hpa else None,
        )

    def _granted(self, role: Role) -> int:
        """By how high a maximum the HPA of a role may still act."""
        hpa = self._hpas.get(role)
        return max([hpa.maximum, *(grant.maximum for grant in _open([hpa], self._now))]) if hpa else 0

    def _fixed(self) -> int:
        """GPUs of pods that leave, and of revisions that nobody scales any more."""
        total = self._fleet.leaving
        for role in ENGINE_ROLES:
            scaled = role in self._limits.scaled
            others = set(self._fleet.revisions) - {self._target, *([self._followed] if scaled else [])}
            # An HPA that has just moved may not have seen it yet.
            still = self._granted(role) if scaled else 0
            for revision in others:
                total += self._fleet.gpus(role, revision) * max(self._fleet.instances(role, revision), still)
        return total

    def _fitted_first(self) -> dict[Role, int]:
        """With how many pods the target revision starts: as many as the one before has, or as the spec says."""
        counts = self._limits.counts
        before = {role: self._fleet.instances(role, self._followed) if self._followed else 0 for role in ENGINE_ROLES}
        if any(before.values()) or self._limits.budget is None:
            return {role: counts[role].within(before[role] or counts[role].initial) for role in ENGINE_ROLES}
        p, d = (Standing(counts[role].initial, *counts[role].limits, self._limits.gpus[role]) for role in (P, D))
        return dict(zip((P, D), fitted(p, d, self._limits.budget), strict=True))

    def _needed(self) -> int:
        """GPUs of all that is there, and of the target revision beside it."""
        p, d = self._standings(with_target=True)
        return p.gpus * max(p.live, p.minimum) + d.gpus * max(d.live, d.minimum) + self._fixed()

    def _reachable(self, *, with_first: bool) -> int:
        """GPUs of all that is there when HPAs go as far as they may before they see anything new."""
        growth = 0
        for role in self._limits.scaled if self._followed else ():
            there = self._fleet.instances(role, self._followed)
            more = max(0, self._granted(role) - there) if there else 0  # an HPA that finds no pods does nothing
            growth += more * self._fleet.gpus(role, self._followed)
        return self._fleet.wanted + self._fleet.leaving + growth + (self._first_gpus if with_first else 0)

    @property
    def _first_gpus(self) -> int:
        return sum(self._first[role] * self._limits.gpus[role] for role in ENGINE_ROLES)

    def _too_little(self, budget: int) -> str:
        needed = self._needed()
        text = (
            f"The new pair needs {self._first_gpus} GPUs, {self._fleet.used} are in use, and "
            f"spec.autoscaling.gpuBudget is {budget}."
        )
        if self._limits.recreates or not self._followed:
            return f"{text} It starts when the pods that are still there are gone."
        return (
            f"{text} Raise it to {needed}, at least until the roll-out is over, or use rollout.strategy Recreate, "
            "which ends the old pair first."
        )


def _open(hpas: Iterable[AutoscalerState | None], now: datetime) -> tuple[Grant, ...]:
    return tuple(hpa.grant for hpa in hpas if hpa is not None and hpa.grant is not None and hpa.grant.until > now)
