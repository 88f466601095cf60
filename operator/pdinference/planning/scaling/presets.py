"""Presets: metrics, targets and behavior of a role's HPA when the spec sets only the range of replicas.

The numbers come from simulations (`benchmarks/autoscaling`); docs/autoscaling.md explains them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pdinference.api.names import Role
from pdinference.planning.scaling.signals import Signal


@dataclass(frozen=True, slots=True)
class Preset:
    """The metrics, targets and behavior of one role's HPA.

    Attributes:
        targets: AverageValue of each external metric, in thousandths: the target utilisation of a pod. The HPA uses
            the metric that recommends most pods, and does not scale down while one of them is unknown.
        behavior: `spec.behavior`.
    """

    targets: Mapping[Signal, int]
    behavior: Mapping[str, Any]


_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Percent", "value": 100, "periodSeconds": 15},
        {"type": "Pods", "value": 4, "periodSeconds": 15},
    ],
}
# Scale-down waits for minutes and removes one pod at a time, because bursts often follow each other. A pod that starts
# too late costs more than an idle one: a queue in P takes minutes to drain. A missing D pod only slows the others down,
# so D scales down sooner. Pods that D added within the last 300 s are removed at once: an HPA counts from the replicas
# at the beginning of a policy's period, and D's period is longer than its window. With more than ten pods, a tenth is
# removed.
_P_DOWN = {
    "stabilizationWindowSeconds": 300,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Percent", "value": 10, "periodSeconds": 300},
        {"type": "Pods", "value": 1, "periodSeconds": 300},
    ],
}
_D_DOWN = {**_P_DOWN, "stabilizationWindowSeconds": 120}


# Where few requests fill the KV cache (long contexts, small GPUs), requests wait and are preempted although decode load
# is below its target; there KV usage causes scale-up. Where memory bandwidth limits a pod, its cache is about half full
# at a load of 90 %, so decode load decides. KV usage rather than KV demand: usage recommends at most 1.25 times the
# serving pods. Each queued request raises demand, but most of a queue has drained before a new pod is ready.
# `benchmarks.autoscaling.kv_targets` compares them.
_D_TARGETS = {Signal.DECODE_LOAD: 900, Signal.KV_USAGE: 800}

PRESETS: Final = {
    Role.PARAMETER: Preset({Signal.PREFILL_LOAD: 900}, {"scaleUp": _UP, "scaleDown": _P_DOWN}),
    Role.DECODE: Preset(_D_TARGETS, {"scaleUp": _UP, "scaleDown": _D_DOWN}),
}
"""The preset of each role."""
