"""Rules between `spec.autoscaling` and the two roles.

Tests: tests/api/test_mode.py, tests/checks/test_scaling.py, tests/integration/test_crd.py
"""

from typing import Any

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.base import Rule
from pdinference.api.v1alpha1.host_local_rules import DEVICES, HOST_LOCAL
from pdinference.api.v1alpha1.mode import of_the_pair

_RATIO = "has(self.autoscaling) && has(self.autoscaling.ratio)"
_BUDGET = "has(self.autoscaling) && has(self.autoscaling.gpuBudget)"
_SCALED = "has(self.parameter.autoscaling) && has(self.decode.autoscaling)"


def _least_gpus(role: Role) -> str:
    """CEL expression: GPUs of the pods of a role at its minimum replica count. P may have none."""
    own = f"self.{role}"
    pods = f"(has({own}.autoscaling) && {own}.replicas > 0 ? {own}.autoscaling.minReplicas : {own}.replicas)"
    each = f"{own}.parallelism.tensor * {own}.parallelism.pipeline * {own}.parallelism.data"
    without = ""
    if role is Role.PARAMETER:
        without = f"self.mode == 'Aggregated' || {HOST_LOCAL} || "
    else:
        each = f"(self.mode != 'Aggregated' && {HOST_LOCAL} ? {DEVICES} : {each})"
    return f"({without}{own}.accelerator.type == 'CPU' ? 0 : {pods} * {each})"


def _ratio(spec: Any) -> Any:
    return spec.autoscaling.ratio if spec.autoscaling is not None else None


def _budget(spec: Any) -> int | None:
    budget: int | None = spec.autoscaling.gpu_budget if spec.autoscaling is not None else None
    return budget


def _fits(spec: Any) -> bool:
    budget = _budget(spec)
    return (
        budget is None or sum(spec.of(role).least_replicas * spec.gpus(role) for role in spec.workload_roles) <= budget
    )


def _enough_p(spec: Any) -> bool:
    band, p, d = _ratio(spec), spec.parameter.autoscaling, spec.decode.autoscaling
    if band is None or band.min is None or p is None or d is None:
        return True
    needed: int = d.min_replicas * band.min.parameter
    return bool(needed <= p.max_replicas * band.min.decode)


def _enough_d(spec: Any) -> bool:
    band, p, d = _ratio(spec), spec.parameter.autoscaling, spec.decode.autoscaling
    if band is None or band.max is None or p is None or d is None:
        return True
    # P is rounded up to a whole pod, so one P pod above the ratio is valid.
    needed: int = (p.min_replicas - 1) * band.max.decode
    return bool(needed < d.max_replicas * band.max.parameter)


_RATIO_RULES = (
    Rule(
        cel=f"!({_RATIO}) || ({_SCALED})",
        holds=lambda s: _ratio(s) is None or all(s.of(role).autoscaling is not None for role in ENGINE_ROLES),
        field="autoscaling.ratio",
        message="A ratio needs autoscaling in spec.parameter and spec.decode. Without autoscaling, set replicas of the "
        "roles.",
    ),
    Rule(
        cel=f"!({_RATIO}) || !has(self.autoscaling.ratio.min) || !({_SCALED}) || self.decode.autoscaling.minReplicas "
        "* self.autoscaling.ratio.min.parameter <= self.parameter.autoscaling.maxReplicas "
        "* self.autoscaling.ratio.min.decode",
        holds=_enough_p,
        field="autoscaling.ratio.min",
        message="minReplicas of spec.decode need more P pods than maxReplicas of spec.parameter. Raise maxReplicas, or "
        "lower minReplicas or the ratio.",
    ),
    Rule(
        cel=f"!({_RATIO}) || !has(self.autoscaling.ratio.max) || !({_SCALED}) "
        "|| (self.parameter.autoscaling.minReplicas - 1) * self.autoscaling.ratio.max.decode "
        "< self.decode.autoscaling.maxReplicas * self.autoscaling.ratio.max.parameter",
        holds=_enough_d,
        field="autoscaling.ratio.max",
        message="minReplicas of spec.parameter need more D pods than maxReplicas of spec.decode. Raise maxReplicas, or "
        "lower minReplicas or the ratio.",
    ),
)

SCALING_RULES = (
    *of_the_pair(_RATIO_RULES),
    Rule(
        cel=f"!({_BUDGET}) || self.decode.accelerator.type != 'CPU' "
        "|| (self.mode != 'Aggregated' && self.parameter.accelerator.type != 'CPU')",
        holds=lambda s: _budget(s) is None or any(s.of(role).accelerator.type != "CPU" for role in s.engine_roles),
        field="autoscaling.gpuBudget",
        message="No role has GPUs (accelerator.type is CPU). Remove gpuBudget; limit the roles with maxReplicas.",
    ),
    Rule(
        cel=f"!({_BUDGET}) || {' + '.join(map(_least_gpus, ENGINE_ROLES))} <= self.autoscaling.gpuBudget",
        holds=_fits,
        field="autoscaling.gpuBudget",
        message="The budget is too small for the minimum replica counts of P and D (minReplicas; without autoscaling, "
        "replicas), each with tensor x pipeline x data GPUs. Raise the budget or lower the counts.",
    ),
)
