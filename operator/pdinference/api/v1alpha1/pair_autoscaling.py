"""`spec.autoscaling`: what holds for P and D together while the load of each decides how many pods it has."""

from typing import Literal

from pdinference.api.v1alpha1.base import ApiModel

MetricsSource = Literal["Builtin", "KEDA", "PrometheusAdapter"]


class PairAutoscaling(ApiModel):
    """What holds for P and D together."""

    source: MetricsSource | None = None
    """Who tells the load. Builtin: the operator. KEDA: a ScaledObject for each role, which asks Prometheus.
    PrometheusAdapter: that, by the chart's rules. Default: Builtin; KEDA where the operator is installed to use it and
    does not have the API group of external metrics itself."""
