"""What an HPA of a role follows when the user says no more than how many pods there may be.

`benchmarks/autoscaling` chose the numbers, and shows what they do; docs/autoscaling.md says what they mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pdinference.api.names import Role
from pdinference.planning.scaling.signals import Signal


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """One entry of an HPA's `behavior.scaleUp.policies` or `scaleDown.policies`."""

    type: str
    value: int
    period_seconds: int

    def manifest(self) -> dict[str, Any]:
        """As the Kubernetes API writes it."""
        return {"type": self.type, "value": self.value, "periodSeconds": self.period_seconds}


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """How fast an HPA may go in one direction; of several policies the one that allows most holds."""

    stabilization_seconds: int
    policies: tuple[ScalingPolicy, ...]

    def manifest(self) -> dict[str, Any]:
        """As the Kubernetes API writes it."""
        return {
            "stabilizationWindowSeconds": self.stabilization_seconds,
            "selectPolicy": "Max",
            "policies": [policy.manifest() for policy in self.policies],
        }


@dataclass(frozen=True, slots=True)
class Preset:
    """The metrics, targets and pace of one role's HPA.

    Attributes:
        targets: AverageValue of each external metric, in thousandths: how much of a pod is to be used. The HPA follows
            the metric that asks for most pods, and removes none while one of them is unknown.
        scale_up: Pace upwards.
        scale_down: Pace downwards.
    """

    targets: Mapping[Signal, int]
    scale_up: ScalingRules
    scale_down: ScalingRules

    def behavior(self) -> dict[str, Any]:
        """`spec.behavior` of the HPA."""
        return {"scaleUp": self.scale_up.manifest(), "scaleDown": self.scale_down.manifest()}


_UP = ScalingRules(0, (ScalingPolicy("Percent", 100, 15), ScalingPolicy("Pods", 4, 15)))
# Pods stay for minutes and go one at a time, because one burst often follows another, and a pod that comes too late
# costs more than one that waits: a queue in P takes minutes to work off. A D pod that is missing slows the others
# down, but they go on, so D follows the load down sooner, and what came within the last 300 s goes at once: an HPA
# counts from the pods that there were when a policy's period began, and D's period is longer than its window. In
# fleets of more than ten pods a tenth goes.
_STEPS = (ScalingPolicy("Percent", 10, 300), ScalingPolicy("Pods", 1, 300))
_P_DOWN = ScalingRules(300, _STEPS)
_D_DOWN = ScalingRules(120, _STEPS)


# Where few requests fill the KV cache (long contexts, small cards), requests wait and are preempted while decode load
# is still within its target; there KV usage asks for more pods. Where memory bandwidth limits a pod, its cache is about
# half full at a load of 90 %, so there decode load decides. Usage and not demand: usage never asks for more than 1.25
# times the pods that serve, while each queued request raises demand, and most of a queue is gone before a new pod has
# started. `benchmarks.autoscaling.kv_targets` compares them.
_D_TARGETS = {Signal.DECODE_LOAD: 900, Signal.KV_USAGE: 800}

PRESETS: Final = {
    Role.PARAMETER: Preset({Signal.PREFILL_LOAD: 900}, _UP, _P_DOWN),
    Role.DECODE: Preset(_D_TARGETS, _UP, _D_DOWN),
}
"""The preset of each role."""
