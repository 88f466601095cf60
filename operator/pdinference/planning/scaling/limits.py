"""What a spec says of P and D together."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.pair_autoscaling import PodRatio
from pdinference.planning.scaling.ratio import Ratio
from pdinference.planning.scaling.replicas import ScaleRange


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


def _ratio(spec: Spec) -> Ratio | None:
    band = spec.autoscaling.ratio if spec.autoscaling is not None else None
    return Ratio(_p_for_one_d(band.min), _p_for_one_d(band.max)) if band is not None else None


def _p_for_one_d(ratio: PodRatio | None) -> Fraction | None:
    return Fraction(ratio.parameter, ratio.decode) if ratio is not None else None
