"""All revisions of P and D that there are side by side, and the one that is to come: their pods, and GPUs."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import AutoscalerState
from pdinference.planning.scaling.bounds import Standing, fitted
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.grants import earlier_maximum, highest_maximum
from pdinference.planning.scaling.limits import Limits
from pdinference.planning.scaling.wanted import wanted_by

P, D = Role.PARAMETER, Role.DECODE


class SideBySide:
    """What is there, counted against what the spec limits.

    Args:
        limits: What the spec says.
        fleet: What is there.
        hpas: The live HPA of each role that has one.
        target: The revision that the spec asks for.
        followed: The revision that HPAs follow; empty for none.
        now: The time.

    Attributes:
        to_come: Whether the target revision does not exist yet.
        first: With how many pods it starts.
        has_room: Whether it can be created beside what is there.
    """

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
        self.limits, self.fleet, self.hpas = limits, fleet, hpas
        self.target, self.followed, self.now = target, followed, now
        self.to_come = target not in fleet.revisions
        self.first = self._fitted_first()
        self.has_room = limits.budget is None or not self.to_come or self.needed() <= limits.budget

    def standings(self, *, with_target: bool) -> tuple[Standing, Standing]:
        """How the roles stand, each instance with those of all revisions that have as many."""
        return self._standing(P, with_target), self._standing(D, with_target)

    def _standing(self, role: Role, with_target: bool) -> Standing:
        """The revision that HPAs follow, and the target revision, which is to have as many pods."""
        counts, hpa = self.limits.counts[role], self.hpas.get(role)
        scaled = role in self.limits.scaled
        pair = {self.target, *([self.followed] if scaled else [])} & set(self.fleet.revisions)
        live = {revision: self.fleet.instances(role, revision) for revision in pair}
        gpus = {revision: self.fleet.gpus(role, revision) for revision in pair}
        if with_target and not self.fleet.has(role, self.target):
            live[self.target], gpus[self.target] = self.first[role], self.limits.gpus[role]
        if not scaled:
            if self.target not in live:
                return Standing(0, 0, 0, 0)
            return Standing(live[self.target], *counts.limits, gpus[self.target])
        return Standing(
            max(live.values(), default=0),
            *counts.limits,
            sum(gpus.values()),
            allowed=hpa.maximum if hpa else 0,
            granted=self._granted(role),
            wanted=wanted_by(hpa, live.get(self.followed, 0)) if hpa else None,
        )

    def _granted(self, role: Role) -> int:
        """By how high a maximum the HPA of a role may still act."""
        return highest_maximum(self.hpas.get(role), self.now)

    def _still(self, role: Role, revision: str) -> int:
        """By how high a maximum the HPA of a role may still act on a revision that it is not to scale any more.

        What it may do to the one that it scales now does not count: that would make each maximum depend on itself.
        """
        hpa = self.hpas.get(role)
        there = hpa is not None and self.fleet.has_workload(role, revision, hpa.workload)
        return self._granted(role) if there else earlier_maximum(hpa, self.now)

    def fixed(self) -> int:
        """GPUs of pods that leave, and of revisions that nobody scales any more."""
        total = self.fleet.leaving
        for role, revision in self._abandoned():
            most = max(self.fleet.instances(role, revision), self._still(role, revision))
            total += self.fleet.gpus(role, revision) * most
        return total

    def _abandoned(self) -> Iterator[tuple[Role, str]]:
        """Revisions that nobody scales any more."""
        for role in ENGINE_ROLES:
            kept = {self.target, self.followed} if role in self.limits.scaled else {self.target}
            yield from ((role, revision) for revision in self.fleet.revisions if revision not in kept)

    def _fitted_first(self) -> dict[Role, int]:
        """With how many pods the target revision starts: as many as the one before has, or as the spec says."""
        counts = self.limits.counts
        before = {role: self.fleet.instances(role, self.followed) if self.followed else 0 for role in ENGINE_ROLES}
        if any(before.values()) or self.limits.budget is None:
            return {role: counts[role].within(before[role] or counts[role].initial) for role in ENGINE_ROLES}
        p, d = (Standing(counts[role].initial, *counts[role].limits, self.limits.gpus[role]) for role in (P, D))
        return dict(zip((P, D), fitted(p, d, self.limits.budget), strict=True))

    def needed(self) -> int:
        """GPUs of all that is there, and of the target revision beside it."""
        p, d = self.standings(with_target=True)
        return p.gpus * max(p.live, p.minimum) + d.gpus * max(d.live, d.minimum) + self.fixed()

    def reachable(self, *, with_first: bool) -> int:
        """GPUs of all that is there when HPAs go as far as they may before they see anything new."""
        scaled = [(role, self.followed, self._granted(role)) for role in self.limits.scaled if self.followed]
        abandoned = [(role, revision, self._still(role, revision)) for role, revision in self._abandoned()]
        growth = 0
        for role, revision, most in (*scaled, *abandoned):
            there = self.fleet.instances(role, revision)
            more = max(0, most - there) if there else 0  # an HPA that finds no pods does nothing
            growth += more * self.fleet.gpus(role, revision)
        return self.fleet.wanted + self.fleet.leaving + growth + (self.first_gpus if with_first else 0)

    @property
    def first_gpus(self) -> int:
        """GPUs that the target revision starts with."""
        return sum(self.first[role] * self.limits.gpus[role] for role in ENGINE_ROLES)
