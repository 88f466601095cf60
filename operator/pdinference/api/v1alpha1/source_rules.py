"""Rules between `spec.autoscaling.source` and what the roles scale by."""

from typing import Any

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.base import Rule

_HAS_SOURCE = "has(self.autoscaling) && has(self.autoscaling.source)"


def _source(spec: Any) -> str:
    return (spec.autoscaling.source if spec.autoscaling is not None else None) or "Builtin"


def _wants_kv_demand(spec: Any, role: Role) -> bool:
    scaling = spec.of(role).autoscaling
    return scaling is not None and scaling.targets is not None and scaling.targets.kv_demand is not None


def _computable(role: Role) -> Rule:
    own = f"self.{role}.autoscaling"
    return Rule(
        cel=f"!({_HAS_SOURCE}) || self.autoscaling.source == 'Builtin' "
        f"|| !has({own}) || !has({own}.targets) || !has({own}.targets.kvDemand)",
        holds=lambda s: _source(s) == "Builtin" or not _wants_kv_demand(s, role),
        field=f"{role}.autoscaling.targets.kvDemand",
        message="Prometheus cannot compute it from vLLM's metrics. Use decodeLoad or kvUsage, or "
        "spec.autoscaling.source Builtin.",
    )


def _only_targets(role: Role) -> Rule:
    own = f"self.{role}.autoscaling"
    return Rule(
        cel=f"!({_HAS_SOURCE}) || self.autoscaling.source != 'KEDA' "
        f"|| !has({own}) || !has({own}.metrics) || {own}.metrics.size() == 0",
        holds=lambda s: _source(s) != "KEDA" or not (s.of(role).autoscaling and s.of(role).autoscaling.metrics),
        field=f"{role}.autoscaling.metrics",
        message="A ScaledObject of KEDA takes no metrics of a HorizontalPodAutoscaler. Use targets, or another "
        "spec.autoscaling.source.",
    )


SOURCE_RULES = tuple(rule(role) for rule in (_computable, _only_targets) for role in ENGINE_ROLES)
