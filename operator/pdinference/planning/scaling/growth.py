"""Scale-up of both roles with the GPUs that are free now.

Tests: tests/planning/scaling/test_allocation.py, tests/planning/scaling/test_allocation_properties.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.ratio import Ratio
from pdinference.planning.scaling.scale_spec import other_role

P, D = Role.PARAMETER, Role.DECODE


@dataclass(frozen=True, slots=True)
class RevisionCounts:
    """The revisions of a role that scale together: serving and target revision.

    Attributes:
        wanted: The desired count of each of them.
        minimum: The count up to which this role has precedence over the other role's scale-up beyond its minimum.
        counts: The count of each revision now.
        gpus: GPUs of one instance of each revision.
    """

    wanted: int
    minimum: int
    counts: Mapping[str, int]
    gpus: Mapping[str, int]

    @property
    def highest(self) -> int:
        """The highest count of a revision."""
        return max(self.counts.values(), default=0)

    @property
    def level(self) -> int:
        """The lowest count of a revision; scale-up begins with that revision."""
        return min(self.counts.values(), default=self.wanted)

    def cost(self, level: int) -> int:
        """GPUs needed to raise all revisions to at least this count."""
        return sum(max(0, level - count) * self.gpus[revision] for revision, count in self.counts.items())

    def lowered(self, most: int) -> "RevisionCounts":
        """The same with no revision above this count."""
        return replace(self, counts={revision: min(count, most) for revision, count in self.counts.items()})

    def raised(self, level: int) -> "RevisionCounts":
        """The same with no revision below this count."""
        return replace(self, counts={revision: max(count, level) for revision, count in self.counts.items()})


Levels = Mapping[Role, int]


def grown(roles: Mapping[Role, RevisionCounts], ratio: Ratio | None, free: int) -> dict[Role, int]:
    """The level of each role after the free GPUs are allocated, one instance at a time.

    A role below its minimum comes first, then the role with the lower share of its wanted count. With a ratio, an
    instance is allocated together with the instances of the other role that the ratio requires.

    Args:
        roles: The current counts.
        ratio: P for D.
        free: GPUs that no pod uses or has requested.
    """
    levels: Levels = {role: counts.level for role, counts in roles.items()}
    while (step := next(_steps(roles, ratio, levels, free), None)) is not None:
        levels = step
    return dict(levels)


def _steps(roles: Mapping[Role, RevisionCounts], ratio: Ratio | None, levels: Levels, free: int) -> Iterator[Levels]:
    """The possible steps, best first."""
    for role in _by_need(roles, levels):
        after = _after_one_more(role, roles, ratio, levels)
        if sum(roles[each].cost(after[each]) for each in ENGINE_ROLES) <= free:
            yield after


def _by_need(roles: Mapping[Role, RevisionCounts], levels: Levels) -> list[Role]:
    """The roles below their wanted count, the one with the greatest need first."""
    short = [role for role in ENGINE_ROLES if levels[role] < roles[role].minimum]
    wanting = short or [role for role in ENGINE_ROLES if levels[role] < roles[role].wanted]
    return sorted(wanting, key=lambda role: levels[role] / roles[role].wanted)


def _after_one_more(role: Role, roles: Mapping[Role, RevisionCounts], ratio: Ratio | None, levels: Levels) -> Levels:
    """The levels with one more instance of a role, and the instances that the ratio requires with it."""
    other, count = other_role(role), levels[role] + 1
    after = {role: count, other: levels[other]}
    if ratio is None or count <= roles[role].minimum or ratio.companions(role, count) <= levels[other]:
        return after
    p, d = ratio.least(after[P], after[D])
    return {P: max(after[P], min(p, roles[P].wanted)), D: max(after[D], min(d, roles[D].wanted))}


def fitted(
    counts: Mapping[Role, int], minimums: Mapping[Role, int], gpus: Mapping[Role, int], budget: int
) -> dict[Role, int]:
    """These counts reduced to a budget, first in the role with more GPUs above its minimum.

    If not even the minimums fit, each count is its minimum, or the given count if that is lower.

    Args:
        counts: Of each role.
        minimums: Of each role; its count never falls below.
        gpus: GPUs of one instance of each role.
        budget: GPUs.
    """
    found = dict(counts)

    def surplus(role: Role) -> int:
        return (found[role] - minimums[role]) * gpus[role]

    while (excess := sum(found[role] * gpus[role] for role in ENGINE_ROLES) - budget) > 0:
        largest = max(reversed(ENGINE_ROLES), key=surplus)
        if surplus(largest) <= 0:
            return found
        found[largest] -= 1
    for role in ENGINE_ROLES:
        room = -excess // gpus[role] if gpus[role] else 0
        back = min(room, counts[role] - found[role])
        found[role] += back
        excess += back * gpus[role]
    return found
