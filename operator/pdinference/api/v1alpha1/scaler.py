"""The `PDScaler` resource: the scale target of one autoscaled role of a `PDInference`.

A scaler (HorizontalPodAutoscaler, KEDA, `kubectl scale`) writes `spec.replicas` by the scale subresource. The operator
reads that recommendation, decides on the replica counts of the role's workloads, and reports in `status` what exists.

Tests: tests/api/test_crd.py
"""

from typing import Annotated

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.v1alpha1.status import Condition

MAX_RECOMMENDED = 1000
"""Largest `spec.replicas`, in pods: that of `autoscaling.maxReplicas`."""


class ScalerSpec(ApiModel):
    """Desired state of a PDScaler."""

    replicas: Annotated[int, Field(ge=0, le=MAX_RECOMMENDED)] | None = None
    """Recommended replica count of the role. The operator sets it if it is absent. Afterwards, scalers write it. The
    range, the ratio and the GPU budget of the PDInference limit the allocated replica count."""


class ScalerStatus(ApiModel):
    """Observed state of a PDScaler: the pods of the serving revision."""

    replicas: Annotated[int, Field(ge=0)] = 0
    """Number of pods of the serving revision. It is 0 while the role is asleep."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of the pods of the serving revision."""
    revision: Annotated[str, Field(max_length=63)] = ""
    """The serving revision."""
    baseline_inter_token_microseconds: Annotated[int, Field(ge=0)] | None = None
    """Decode only: the shortest inter-token latency, in microseconds, that the operator observed on a pod of the
    revision. Decode load is relative to it."""
    conditions: Annotated[
        list[Condition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = Field(default_factory=list)
    """Conditions. Limited is True while the allocated replica count differs from spec.replicas; its reason names the
    limit."""
