"""The observed state of a PDScaler, the scale target of one autoscaled role.

Tests: tests/planning/scaling/test_baseline.py, tests/cluster/test_scalers.py
"""

from dataclasses import dataclass

from pdinference.api.v1alpha1 import Condition


@dataclass(frozen=True, slots=True)
class ScalerState:
    """A PDScaler.

    Attributes:
        recommended: Pods that a scaler recommends; None before the operator has set a first count.
        replicas: Pods of the serving revision, as last reported.
        selector: Label selector of these pods.
        revision: The serving revision, as last reported.
        baseline_microseconds: Baseline inter-token latency of a D pod of `revision`, in microseconds; None if unknown.
        conditions: As last reported.
    """

    recommended: int | None = None
    replicas: int = 0
    selector: str = ""
    revision: str = ""
    baseline_microseconds: int | None = None
    conditions: tuple[Condition, ...] = ()
