"""`spec.autoscaling`: what holds for P and D together while the load of each decides how many pods it has."""

from typing import Literal

from pdinference.api.v1alpha1.base import ApiModel

MetricsSource = Literal["Builtin", "KEDA", "PrometheusAdapter"]


class PairAutoscaling(ApiModel):
    """What holds for P and D together."""

    source: MetricsSource | None = None
    """Who tells HorizontalPodAutoscalers the load. Builtin: the operator. KEDA: a ScaledObject for each role, which asks
    Prometheus. PrometheusAdapter: prometheus-adapter, with the rules that the chart installs. Default: Builtin; KEDA
    where it has the API group and the operator is installed to use it."""
