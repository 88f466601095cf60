"""The scaling fields of a spec: ranges of both roles, P:D ratio, GPU budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import RoleSpec, Spec
from pdinference.api.v1alpha1.pair_autoscaling import PodRatio
from pdinference.planning.scaling.ratio import Ratio


@dataclass(frozen=True, slots=True)
class RoleScale:
    """The allowed replica counts of a role.

    Attributes:
        initial: Replica count before the role's recommended count applies.
        minimum: `minReplicas`; without autoscaling, `replicas`.
        maximum: `maxReplicas`; without autoscaling, `replicas`.
        gpus: GPUs of one replica, over all its nodes.
        autoscaled: Whether a scale target recommends the replica count.
    """

    initial: int
    minimum: int
    maximum: int
    gpus: int = 1
    autoscaled: bool = True

    @classmethod
    def from_spec(cls, spec: RoleSpec, gpus: int) -> "RoleScale":
        """The range of a role; `replicas: 0` stops a role, even with autoscaling."""
        if spec.autoscaling is None or not spec.autoscaled:
            return cls.fixed(spec.replicas, gpus)
        return cls(spec.replicas, spec.autoscaling.min_replicas, spec.autoscaling.max_replicas, gpus)

    @classmethod
    def fixed(cls, count: int, gpus: int = 1) -> "RoleScale":
        """The range of a role without autoscaling."""
        return cls(count, count, count, gpus, autoscaled=False)

    def within(self, count: int) -> int:
        """The nearest count in the range."""
        return min(self.maximum, max(self.minimum, count))


@dataclass(frozen=True, slots=True)
class ScaleSpec:
    """The scaling fields of a spec.

    Attributes:
        roles: The range of each role; of one without pods of its own, 0.
        ratio: P for D; None without a ratio, and if a role is not autoscaled.
        budget: GPUs of all P and D pods; None for no limit.
        recreates: Whether the old revision is deleted before the new one starts (`rollout.strategy: Recreate`).
    """

    roles: Mapping[Role, RoleScale]
    ratio: Ratio | None = None
    budget: int | None = None
    recreates: bool = False

    @classmethod
    def from_spec(cls, spec: Spec) -> "ScaleSpec":
        """The scaling fields of a valid spec, with or without autoscaling."""
        roles = {role: RoleScale.fixed(0) for role in ENGINE_ROLES}
        roles |= {role: RoleScale.from_spec(spec.of(role), spec.gpus(role)) for role in spec.workload_roles}
        joint = spec.autoscaling
        band = joint.ratio if joint is not None and all(scale.autoscaled for scale in roles.values()) else None
        ratio = Ratio(_p_for_one_d(band.min), _p_for_one_d(band.max)) if band is not None else None
        budget = joint.gpu_budget if joint is not None else None
        return cls(roles, ratio, budget, spec.rollout.strategy == "Recreate")

    def most_by_ratio(self, role: Role) -> int:
        """The highest count for which the other role's maximum still keeps the ratio; at least the minimum."""
        scale = self.roles[role]
        counts = range(scale.maximum, scale.minimum, -1)
        return next((count for count in counts if self._possible(role, count)), scale.minimum)

    def _possible(self, role: Role, count: int) -> bool:
        """Whether a role can have this count together with the lowest count of the other role that the ratio allows."""
        p, d = self.roles[Role.PARAMETER], self.roles[Role.DECODE]
        least = (count, d.minimum) if role is Role.PARAMETER else (p.minimum, count)
        least_p, least_d = self.ratio.least(*least) if self.ratio is not None else least
        return least_p <= p.maximum and least_d <= d.maximum


def other_role(role: Role) -> Role:
    """D for P, and P for D."""
    return Role.DECODE if role is Role.PARAMETER else Role.PARAMETER


def _p_for_one_d(ratio: PodRatio | None) -> Fraction | None:
    return Fraction(ratio.parameter, ratio.decode) if ratio is not None else None
