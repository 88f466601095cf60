"""`spec.autoscaling`: what holds for P and D together while the load of each decides how many pods it has."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Rule
from pdinference.api.v1alpha1.scale_to_zero import ScaleToZero

MetricsSource = Literal["Builtin", "KEDA", "PrometheusAdapter"]
Share = Annotated[int, Field(ge=1, le=100)]


class PodRatio(ApiModel):
    """So many P pods for so many D pods."""

    parameter: Share = 1
    """P pods."""
    decode: Share = 1
    """D pods."""


class RatioBand(ApiModel):
    """How many P there are for D. Holds to the next whole pod: at least 2:3 with one D means 1 P."""

    min: PodRatio | None = None
    """Never fewer P for D than this. Default: any number."""
    max: PodRatio | None = None
    """Never more P for D than this. Default: any number."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.min) || has(self.max)",
            holds=lambda r: r.min is not None or r.max is not None,
            message="Set min, max or both, or leave ratio out.",
        ),
        Rule(
            cel="!has(self.min) || !has(self.max) "
            "|| self.min.parameter * self.max.decode <= self.max.parameter * self.min.decode",
            holds=lambda r: (
                r.min is None or r.max is None or r.min.parameter * r.max.decode <= r.max.parameter * r.min.decode
            ),
            field="max",
            message="Use at least as many P for D as min asks for.",
        ),
    )


class PairAutoscaling(ApiModel):
    """What holds for P and D together. minReplicas and maxReplicas of the roles go before the ratio."""

    source: MetricsSource | None = None
    """From where autoscalers read the load. Builtin: the operator's metrics API. KEDA, PrometheusAdapter: Prometheus,
    which reads it from the operator. Default: Builtin."""
    ratio: RatioBand | None = None
    """How many P there are for D, where both are autoscaled. Default: as the load of each decides."""
    gpu_budget: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """GPUs that all pods of P and D may have together, those of a revision that comes or goes included. A roll-out
    waits until a second pair fits in. Default: no limit."""
    scale_to_zero: ScaleToZero | None = None
    """No pods while nobody asks. Default: never fewer than minReplicas."""
