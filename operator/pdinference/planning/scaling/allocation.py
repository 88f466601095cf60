"""Allocates the replica counts of P and D.

Each reconcile allocates them anew from the spec, the recommended counts, and the existing workloads and pods. There is
no other state. Scale-up uses only GPUs that are free now; a later reconcile allocates the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.fleet import ScaledFleet
from pdinference.planning.scaling.growth import RevisionCounts, fitted, grown
from pdinference.planning.scaling.limited import Limit, RoleOutcome, asleep_limit, limit_of
from pdinference.planning.scaling.scale_spec import ScaleSpec

P, D = Role.PARAMETER, Role.DECODE
Recommended = Mapping[Role, int | None]
Roles = Mapping[Role, RevisionCounts]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The replica counts of P and D.

    Attributes:
        replicas: The count of each role and revision: the target revision, even before it exists, and the serving
            revision if it is another one and exists. Worker nodes have the count of their role and revision.
        limited: Why a role's count differs from the recommended one; only for roles where it does.
        blocked: Why the target revision may not be created yet, as a message; empty if it may, or exists.
        used: GPUs of all P and D pods that exist, terminate, or are requested.
        budget: `spec.autoscaling.gpuBudget`; None for no limit.
    """

    replicas: Mapping[Role, Mapping[str, int]]
    limited: Mapping[Role, Limit] = field(default_factory=dict)
    blocked: str = ""
    used: int = 0
    budget: int | None = None


def allocate(
    spec: ScaleSpec, fleet: ScaledFleet, recommended: Recommended, *, target: str, serving: str, asleep: bool = False
) -> Allocation:
    """Decide all replica counts.

    Args:
        spec: The scaling fields of the spec.
        fleet: The workloads and pods of all revisions.
        recommended: `spec.replicas` of each role's scale target; None or absent without one.
        target: The revision of the spec.
        serving: The revision that requests go to; the target if the router has zero replicas; empty while none serves.
        asleep: Whether the target revision is scaled to zero.
    """
    decision = _Decision(spec, fleet, recommended, target=target, serving=serving)
    return decision.asleep() if asleep else decision.awake()


class _Decision:
    """One call of `allocate`: its arguments and values derived from them."""

    def __init__(
        self, spec: ScaleSpec, fleet: ScaledFleet, recommended: Recommended, *, target: str, serving: str
    ) -> None:
        self._spec, self._fleet, self._target, self._serving = spec, fleet, target, serving
        self._scaled = _scaled_revision(spec, fleet, target, serving)
        self._recommended = recommended

    def asleep(self) -> Allocation:
        """The target revision has zero replicas."""
        replicas = {role: {**self._unchanged(role), self._target: 0} for role in ENGINE_ROLES}
        limited = {role: asleep_limit(self._requested(role)) for role in ENGINE_ROLES}
        return Allocation(replicas, limited, used=self._gpus_in_use({}), budget=self._spec.budget)

    def awake(self) -> Allocation:
        """The counts follow the recommendations, within the limits."""
        roles = self._shrunk(self._current(self._wanted()))
        if self._target in self._fleet.revisions:
            return self._allocation(self._grown(roles))
        with_target = self._with_target(roles)
        if self._fits(self._gpus_in_use(with_target)):
            return self._allocation(self._grown(with_target))
        grown = self._grown(roles)
        found, first = self._allocation(grown), self._first(grown)
        replicas = {role: {**counts, self._target: first[role]} for role, counts in found.replicas.items()}
        return replace(found, replicas=replicas, blocked=self._blocked_message(first, found.used))

    def _grown(self, roles: Roles) -> Roles:
        """The roles after scale-up with the free GPUs."""
        wanted = {role: counts.wanted for role, counts in roles.items()}
        free = None if self._spec.budget is None else self._spec.budget - self._gpus_in_use(roles)
        levels = wanted if free is None else grown(roles, self._spec.ratio, free)
        return {role: counts.raised(levels[role]) for role, counts in roles.items()}

    def _allocation(self, roles: Roles) -> Allocation:
        used = self._gpus_in_use(roles)
        replicas = {role: {**self._unchanged(role), **counts.counts} for role, counts in roles.items()}
        limits = {role: self._limit(role, counts, used) for role, counts in roles.items()}
        limited = {role: limit for role, limit in limits.items() if limit is not None}
        return Allocation(replicas, limited, used=used, budget=self._spec.budget)

    def _limit(self, role: Role, counts: RevisionCounts, used: int) -> Limit | None:
        scale, recommended = self._spec.roles[role], self._recommended.get(role)
        applies = bool(self._scaled) or not scale.autoscaled or recommended is None
        if not scale.autoscaled or recommended is None:
            recommended = scale.within(self._requested(role))
        outcome = RoleOutcome(recommended, counts.wanted, counts.level, applies, len(counts.counts))
        return limit_of(self._spec, role, outcome, used=used)

    def _requested(self, role: Role) -> int:
        """The recommended count; without one, and before a revision serves, the current count."""
        scale, recommended = self._spec.roles[role], self._recommended.get(role)
        if not scale.autoscaled:
            return scale.initial
        if self._scaled and recommended is not None:
            return recommended
        return self._fleet.instances(role, self._scaled or self._target) or scale.initial

    def _wanted(self) -> dict[Role, int]:
        """The requested counts, moved into the range and the ratio."""
        spec = self._spec
        counts = {
            role: min(scale.within(self._requested(role)), spec.most_by_ratio(role))
            for role, scale in spec.roles.items()
        }
        if spec.ratio is None:
            return counts
        p, d = spec.ratio.least(counts[P], counts[D])
        return {P: spec.roles[P].within(p), D: spec.roles[D].within(d)}

    def _current(self, wanted: Mapping[Role, int]) -> Roles:
        """The current counts of the revisions of each role that scale together."""
        return {role: self._revisions_of(role, wanted[role]) for role in ENGINE_ROLES}

    def _revisions_of(self, role: Role, wanted: int) -> RevisionCounts:
        scale = self._spec.roles[role]
        moving = {self._target, self._scaled} if scale.autoscaled else {self._target}
        # The serving revision may be of the other mode, and lack the role.
        having = {revision for revision in moving if revision == self._target or self._fleet.has(role, revision)}
        revisions = sorted(having & set(self._fleet.revisions))
        counts = {revision: self._fleet.instances(role, revision) for revision in revisions}
        gpus = {revision: self._gpus(role, revision) for revision in revisions}
        return RevisionCounts(wanted, min(scale.minimum, wanted), counts, gpus)

    def _with_target(self, roles: Roles) -> Roles:
        """The same with the target revision added, which does not exist yet."""
        first = self._first(roles)
        return {
            role: replace(
                counts,
                counts={**counts.counts, self._target: first[role]},
                gpus={**counts.gpus, self._target: self._gpus(role, self._target)},
            )
            for role, counts in roles.items()
        }

    def _shrunk(self, roles: Roles) -> Roles:
        """The counts after scale-down to the wanted ones, and to the budget if it was lowered or a minimum was raised.

        GPUs of terminating pods and of revisions to be deleted do not count here, because they become free anyway.
        """
        kept: Mapping[Role, int] = {
            role: max(min(counts.highest, counts.wanted), counts.minimum) for role, counts in roles.items()
        }
        minimums = {role: counts.minimum for role, counts in roles.items()}
        gpus = {role: sum(counts.gpus.values()) for role, counts in roles.items()}
        if self._fits(sum(minimums[role] * gpus[role] for role in ENGINE_ROLES)):
            kept = self._fitted(kept, minimums, gpus)
        return {role: counts.lowered(kept[role]) for role, counts in roles.items()}

    def _first(self, roles: Roles) -> Mapping[Role, int]:
        """The initial counts of the target revision: those of the serving revision, if one serves."""
        if self._scaled not in {"", self._target}:
            return {role: counts.level for role, counts in roles.items()}
        wanted = {role: counts.wanted for role, counts in roles.items()}
        minimums = {role: counts.minimum for role, counts in roles.items()}
        return self._fitted(wanted, minimums, {role: self._spec.roles[role].gpus for role in ENGINE_ROLES})

    def _fitted(
        self, counts: Mapping[Role, int], minimums: Mapping[Role, int], gpus: Mapping[Role, int]
    ) -> Mapping[Role, int]:
        return counts if self._spec.budget is None else fitted(counts, minimums, gpus, self._spec.budget)

    def _fits(self, gpus: int) -> bool:
        return self._spec.budget is None or gpus <= self._spec.budget

    def _unchanged(self, role: Role) -> dict[str, int]:
        """The current count of the serving revision, for roles where it does not scale."""
        exists = self._fleet.has(role, self._serving)
        return {self._serving: self._fleet.instances(role, self._serving)} if exists else {}

    def _gpus(self, role: Role, revision: str) -> int:
        """GPUs of an instance; for the target revision, including nodes whose workloads do not exist yet."""
        return self._spec.roles[role].gpus if revision == self._target else self._fleet.gpus(role, revision)

    def _gpus_in_use(self, roles: Roles) -> int:
        """GPUs of all existing pods and of those that these counts add. Pods that scale-down removes still count."""
        counts = {
            (role, revision): self._fleet.instances(role, revision)
            for role in ENGINE_ROLES
            for revision in self._fleet.revisions
        }
        for role, moving in roles.items():
            for revision, count in moving.counts.items():
                counts[role, revision] = max(count, counts.get((role, revision), 0))
        return sum(count * self._gpus(*place) for place, count in counts.items()) + self._fleet.uncounted_gpus

    def _blocked_message(self, first: Mapping[Role, int], used: int) -> str:
        needed = sum(first[role] * self._spec.roles[role].gpus for role in ENGINE_ROLES)
        text = (
            f"The new revision needs {needed} GPUs, {used} are in use, and spec.autoscaling.gpuBudget is "
            f"{self._spec.budget}."
        )
        if not self._scaled:
            return f"{text} It starts when the remaining pods have ended."
        return (
            f"{text} Raise it to {used + needed} until the roll-out is complete, or set spec.rollout.strategy to "
            "Recreate, which deletes the old revision first."
        )


def _scaled_revision(spec: ScaleSpec, fleet: ScaledFleet, target: str, serving: str) -> str:
    """The revision whose counts follow the recommendation; empty while none serves.

    An earlier revision with a role without pods was asleep or stopped when the spec changed. It serves no requests and
    is not started. With Recreate an earlier revision is deleted.
    """
    if serving in {"", target}:
        return serving
    started = all(fleet.instances(role, serving) for role in ENGINE_ROLES if fleet.has(role, serving))
    return serving if started and not spec.recreates else ""
