"""Specs for both values of `spec.mode`."""

from typing import Any

CPU = {"accelerator": {"type": "CPU"}}
SCALED = {"autoscaling": {"minReplicas": 1, "maxReplicas": 4}}
ONLY_WITHOUT_P: dict[str, dict[str, Any]] = {
    "fewer ranks of D": {"parameter": {"parallelism": {"tensor": 2}}},
    "a connector for GPUs": {"transfer": {"connector": "Mooncake", "mooncake": {"protocol": "tcp"}}, "decode": CPU},
    "the ratio of one role": {"decode": SCALED, "autoscaling": {"ratio": {"min": {"parameter": 1}}}},
    "a budget for D": {"decode": {"replicas": 2}, "autoscaling": {"gpuBudget": 2}},
    "sleep of one role": {"decode": SCALED, "autoscaling": {"scaleToZero": {}}},
}
"""By what D may do then; with the default mode they are wrong."""
IN_NO_MODE: dict[str, dict[str, Any]] = {
    "spec.parameter.nodePools": {"parameter": {"nodePools": [{}]}},
    "spec.parameter.replicas": {"parameter": {"replicas": -1}},
    "spec.decode.parallelism.pipeline": {"decode": {"parallelism": {"pipeline": 2}}},
    "spec.autoscaling.gpuBudget": {"decode": {"replicas": 3}, "autoscaling": {"gpuBudget": 2}},
    "spec.autoscaling.scaleToZero": {"parameter": SCALED, "autoscaling": {"scaleToZero": {}}},
}
"""By the field that is wrong."""
