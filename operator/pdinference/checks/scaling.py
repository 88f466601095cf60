"""Limits on replica counts that contradict each other."""

from collections.abc import Iterator

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.planning.scaling.scale_spec import ScaleSpec


def scaling_problems(spec: Spec) -> Iterator[Problem]:
    """The minimum counts that satisfy the ratio must be within maxReplicas and the GPU budget."""
    scale = ScaleSpec.from_spec(spec)
    if scale.ratio is None or not scale.ratio.possible:  # a rule of the resource reports it
        return
    p, d = (scale.roles[role] for role in ENGINE_ROLES)
    least_p, least_d = scale.ratio.least(p.minimum, d.minimum)
    needs = f"With these minReplicas, the ratio needs at least {least_p} P and {least_d} D pods"
    if least_p > p.maximum or least_d > d.maximum:
        yield Problem(
            "spec.autoscaling.ratio",
            f"{needs}, but maxReplicas allows {p.maximum} P and {d.maximum} D. Raise maxReplicas, lower minReplicas, "
            "or widen the ratio.",
        )
    gpus = least_p * p.gpus + least_d * d.gpus
    if scale.budget is not None and gpus > scale.budget:
        yield Problem(
            "spec.autoscaling.gpuBudget",
            f"{needs} with {gpus} GPUs, but the budget is {scale.budget}. Raise the budget, lower minReplicas, or "
            "widen the ratio.",
        )
