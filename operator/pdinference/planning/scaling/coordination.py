"""P and D together: what `spec.autoscaling` allows each of them now, given all that is there.

Decided anew in every reconcile, from live objects alone. What cannot be seen in them, by which earlier maximum an HPA
may still act, the HPA itself carries in an annotation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.pair_autoscaling import PodRatio
from pdinference.planning.observed import AutoscalerState, Grant
from pdinference.planning.scaling.bounds import Range, Ratio, Standing, bounds, fitted
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.replicas import ScaleRange
from pdinference.planning.scaling.wanted import wanted_by

SETTLE: Final = timedelta(seconds=60)
"""How long an HPA may act by what it was told before: four of its controller's rounds. HPAs do not say what they have
seen (Kubernetes 1.34 never sets their observedGeneration)."""

P, D = Role.PARAMETER, Role.DECODE


@dataclass(frozen=True, slots=True)
class Limits:
    """What a spec says of both roles.

    Attributes:
        ratio: P for D; None for any.
        budget: GPUs; None for any number.
        gpus: Of an instance of each role.
        counts: Pods of each role; of one that is not autoscaled, the range has one number.
        scaled: The roles that an HPA scales.
        recreates: Whether the old pair ends before the new one starts.
    """

    ratio: Ratio | None
    budget: int | None
    gpus: Mapping[Role, int]
    counts: Mapping[Role, ScaleRange]
    scaled: frozenset[Role]
    recreates: bool = False

    @classmethod
    def of(cls, spec: Spec) -> "Limits | None":
        """From a spec; None when it sets no limits."""
        scaled = {role: scale for role in ENGINE_ROLES if (scale := ScaleRange.of(spec.of(role))) is not None}
        together = spec.autoscaling
        ratio = _ratio(spec) if len(scaled) == len(ENGINE_ROLES) else None
        budget = together.gpu_budget if together is not None else None
        if ratio is None and budget is None:
            return None
        counts = {role: scaled.get(role) or ScaleRange.fixed(spec.of(role).replicas) for role in ENGINE_ROLES}
        gpus = {role: spec.of(role).gpus for role in ENGINE_ROLES}
        return cls(ratio, budget, gpus, counts, frozenset(scaled), spec.rollout.strategy == "Recreate")


@dataclass(frozen=True, slots=True)
class Coordination:
    """What P and D may have now.

    Attributes:
        ranges: Of each role: `minReplicas` and `maxReplicas` of its HPA. Where no HPA counts, the operator keeps to the
            maximum.
        used: GPUs of all pods.
        budget: GPUs that there may be; None for any number.
        held: Why a new pair is not created, in plain English; empty when it may be.
        settled_at: When the last HPA forgets an earlier maximum; None when all have.
    """

    ranges: Mapping[Role, Range] = field(default_factory=dict)
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
    held = beside.why_held() if limits.budget is not None else ""
    p, d = beside.standings(with_target=beside.has_room)
    room = beside.room(p, d)
    of_p, of_d = bounds(p, d, ratio=limits.ratio, budget=room)
    return Coordination(
        ranges={P: of_p, D: of_d},
        used=fleet.used,
        budget=limits.budget,
        held=held,
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
        if self._reachable() > budget:
            return "The new pair starts when the HPAs act by their new maximums, within a minute or so."
        return ""

    def standings(self, *, with_target: bool) -> tuple[Standing, Standing]:
        """How the roles stand, each instance with those of all revisions that have as many."""
        return self._standing(P, with_target), self._standing(D, with_target)

    def room(self, p: Standing, d: Standing) -> int | None:
        """The budget less what is neither role's to change; never so little that pods had to go for those that go."""
        budget = self._limits.budget
        if budget is None:
            return None
        live = p.gpus * min(p.live, p.maximum) + d.gpus * min(d.live, d.maximum)
        least = p.gpus * p.minimum + d.gpus * d.minimum
        return max(budget - self._fixed(), min(budget, live), least)

    def _standing(self, role: Role, with_target: bool) -> Standing:
        counts, hpa = self._limits.counts[role], self._hpas.get(role)
        live = {revision: self._fleet.instances(role, revision) for revision in self._fleet.revisions}
        gpus = {revision: self._fleet.gpus(role, revision) for revision in self._fleet.revisions}
        if with_target and not self._fleet.has(role, self._target):
            live[self._target], gpus[self._target] = self._first[role], self._limits.gpus[role]
        if role not in self._limits.scaled:
            if self._target not in live:
                return Standing(0, 0, 0, 0)
            return Standing(live[self._target], *counts.limits, gpus[self._target])
        earlier = [grant.maximum for grant in _open([hpa], self._now)]
        return Standing(
            max(live.values(), default=0),
            *counts.limits,
            sum(gpus.values()),
            allowed=hpa.maximum if hpa else 0,
            granted=max([hpa.maximum, *earlier]) if hpa else 0,
            wanted=wanted_by(hpa, live.get(self._followed, 0)) if hpa else None,
        )

    def _fixed(self) -> int:
        """GPUs of pods that leave, and of other revisions of a role that is not autoscaled."""
        roles = [role for role in ENGINE_ROLES if role not in self._limits.scaled]
        others = [revision for revision in self._fleet.revisions if revision != self._target]
        return self._fleet.leaving + sum(
            self._fleet.instances(role, revision) * self._fleet.gpus(role, revision)
            for role in roles
            for revision in others
        )

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
        p, d = self.standings(with_target=True)
        return p.gpus * max(p.live, p.minimum) + d.gpus * max(d.live, d.minimum) + self._fixed()

    def _reachable(self) -> int:
        """The same, when HPAs go as far as they may before they see anything new."""
        there = self.standings(with_target=False)
        return sum(role.gpus * role.reachable for role in there) + self._first_gpus + self._fixed()

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


def _ratio(spec: Spec) -> Ratio | None:
    band = spec.autoscaling.ratio if spec.autoscaling is not None else None
    return Ratio(_p_for_one_d(band.min), _p_for_one_d(band.max)) if band is not None else None


def _p_for_one_d(ratio: PodRatio | None) -> Fraction | None:
    return Fraction(ratio.parameter, ratio.decode) if ratio is not None else None
