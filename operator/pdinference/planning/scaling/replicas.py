"""How many pods a workload gets from the operator where an HPA decides over the rest of its life.

An HPA follows the revision that serves. Everything else the operator counts: how many pods the first revision starts
with, and that a new revision has as many as the one that it is to replace, so that traffic never moves to a pair that
is too small.
"""

from dataclasses import dataclass

from pdinference.api.v1alpha1 import RoleSpec
from pdinference.planning.rollout import RolloutPlan


@dataclass(frozen=True, slots=True)
class ScaleRange:
    """What an autoscaled role asks for.

    Attributes:
        initial: Pods of a revision that has no predecessor.
    """

    initial: int
    minimum: int
    maximum: int

    @classmethod
    def of(cls, spec: RoleSpec) -> "ScaleRange | None":
        """From the spec of a role; None when the role is not autoscaled."""
        if spec.autoscaling is None or not spec.autoscaled:
            return None
        return cls(spec.replicas, spec.autoscaling.min_replicas, spec.autoscaling.max_replicas)

    @classmethod
    def fixed(cls, count: int) -> "ScaleRange":
        """Of a role that has always so many pods."""
        return cls(count, count, count)

    @property
    def limits(self) -> tuple[int, int]:
        """Least and most."""
        return self.minimum, self.maximum

    def capped(self, maximum: int) -> "ScaleRange":
        """The same with a lower maximum, which goes before the minimum."""
        return ScaleRange(self.initial, min(self.minimum, maximum), min(self.maximum, maximum))

    def least(self) -> "ScaleRange":
        """The same for a start with as few pods as may be."""
        return ScaleRange(self.minimum, self.minimum, self.maximum)

    def within(self, count: int) -> int:
        """The nearest count that the range allows."""
        return min(self.maximum, max(self.minimum, count))


def scaled_revision(plan: RolloutPlan, target: str, *, serving_exists: bool, routed: bool) -> str:
    """The revision that HPAs follow; empty as long as none serves.

    Args:
        plan: Of the roll-out.
        target: The revision that the spec asks for.
        serving_exists: Whether the workloads of the serving revision are there (with `Recreate` they go first).
        routed: Whether there is to be a router; without one, nobody can tell who serves.
    """
    if plan.serving and serving_exists:
        return plan.serving
    return "" if routed else target


@dataclass(frozen=True, slots=True)
class WantedCount:
    """How many pods a workload should have now, as far as that is the operator's to say.

    Attributes:
        count: So many; of a workload that an HPA follows, only until the HPA has seen it.
        followed: Whether an HPA decides. One that finds no pods at all does nothing, so 0 is still put right.
    """

    count: int
    followed: bool

    def met_by(self, live: int) -> bool:
        """Whether the operator has to do nothing."""
        return live > 0 if self.followed else live == self.count


def wanted_count(scale: ScaleRange, *, live: int, serving: int, followed: bool) -> WantedCount:
    """How many pods the workload of the target revision should have.

    Args:
        scale: What the role asks for.
        live: How many the workload has now; 0 while it does not exist.
        serving: How many that of the serving revision has, if that is another one; else 0.
        followed: Whether an HPA follows the workload.
    """
    count = scale.within(serving or live or scale.initial)
    return WantedCount(count, followed and count > 0)


def follower_count(leader: WantedCount, live: int) -> WantedCount:
    """How many pods the workload of a further node of P should have: as many as that of the first one.

    Args:
        leader: What the first node's workload should have.
        live: How many it has now.
    """
    return WantedCount(live if leader.met_by(live) else leader.count, followed=False)
