"""The `PDScaler` resource: the scale target of one autoscaled role of a `PDInference`.

A scaler (HorizontalPodAutoscaler, KEDA, `kubectl scale`) writes `spec.replicas` by the scale subresource. The operator
reads that recommendation, decides on the replica counts of the role's workloads, and reports in `status` what exists.
"""

from typing import Annotated

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.v1alpha1.status import Condition

MAX_RECOMMENDED = 1000
"""Largest `spec.replicas`, in pods: that of `autoscaling.maxReplicas`."""


class ScalerSpec(ApiModel):
    """The recommendation."""

    replicas: Annotated[int, Field(ge=0, le=MAX_RECOMMENDED)] | None = None
    """Recommended pods of the role. The operator sets it where it is absent; after that, scalers write it. The range,
    the ratio and the GPU budget of the PDInference limit how many pods there are."""


class ScalerStatus(ApiModel):
    """The pods that exist, as scalers see them: those of the serving revision."""

    replicas: Annotated[int, Field(ge=0)] = 0
    """Pods of the serving revision that exist; 0 while the role is asleep."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of the pods of the serving revision."""
    revision: Annotated[str, Field(max_length=63)] = ""
    """The serving revision."""
    baseline_inter_token_microseconds: Annotated[int, Field(ge=0)] | None = None
    """Of decode: the shortest time per output token, in microseconds, that a pod of the revision was seen to take.
    Decode load is measured against it."""
    conditions: Annotated[
        list[Condition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = Field(default_factory=list)
    """Conditions: Limited, True while the operator allocates another count than spec.replicas; the reason names the
    limit."""
