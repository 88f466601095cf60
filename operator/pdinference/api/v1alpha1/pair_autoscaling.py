"""`spec.autoscaling`: autoscaling settings that apply to P and D together.

Tests: tests/integration/test_crd.py, tests/checks/test_scaling.py
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Rule
from pdinference.api.v1alpha1.scale_to_zero import ScaleToZero

MetricsSource = Literal["Builtin", "KEDA", "PrometheusAdapter"]
Share = Annotated[int, Field(ge=1, le=100)]


class PodRatio(ApiModel):
    """A ratio of P pods to D pods."""

    parameter: Share = 1
    """Number of P pods."""
    decode: Share = 1
    """Number of D pods."""


class RatioBand(ApiModel):
    """Range of the ratio of P to D pods. P is rounded up: a minimum of 2:3 with one D pod means one P pod."""

    min: PodRatio | None = None
    """Minimum ratio of P to D. Default: no minimum."""
    max: PodRatio | None = None
    """Maximum ratio of P to D. Default: no maximum."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.min) || has(self.max)",
            holds=lambda r: r.min is not None or r.max is not None,
            message="Set min, max or both, or remove ratio.",
        ),
        Rule(
            cel="!has(self.min) || !has(self.max) "
            "|| self.min.parameter * self.max.decode <= self.max.parameter * self.min.decode",
            holds=lambda r: (
                r.min is None or r.max is None or r.min.parameter * r.max.decode <= r.max.parameter * r.min.decode
            ),
            field="max",
            message="max must not be less than min, as a ratio of P to D.",
        ),
    )


class PairAutoscaling(ApiModel):
    """Autoscaling settings for P and D together. minReplicas and maxReplicas take precedence over the ratio."""

    source: MetricsSource | None = None
    """Where autoscalers read load signals. Builtin: the operator's external metrics API. KEDA and PrometheusAdapter:
    Prometheus, which scrapes the signals from the operator. Default: Builtin."""
    ratio: RatioBand | None = None
    """Range of the ratio of P pods to D pods. Both roles must be autoscaled. Default: each role follows its own
    load."""
    gpu_budget: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Maximum number of GPUs for all P and D pods together, over all revisions. A BlueGreen roll-out waits until the
    new revision fits the budget. Default: no limit."""
    scale_to_zero: ScaleToZero | None = None
    """Scales P and D to zero pods while there are no requests. Default: at least minReplicas."""
