"""`spec.router`: the one address that clients use."""

from typing import Annotated, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, ImageReference, QualifiedName
from pdinference.api.v1alpha1.roles.role import Placement, PodTemplate, Resources


class RouterService(ApiModel):
    """The Service in front of the router; it has the name of the PDInference."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Kind of Service."""
    port: Annotated[int, Field(ge=1, le=65535)] = 80
    """Port that clients connect to."""
    annotations: Annotated[dict[QualifiedName, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Annotations on the Service, for example for a cloud's load balancer."""


class Router(ApiModel):
    """The router sends each request to a P pod, then to a D pod."""

    image: ImageReference | None = None
    """Image with vllm-router. Default: the one that the operator was installed with; others need the chart's
    `policy.routerImages`."""
    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """Number of router pods."""
    policy: Literal["random", "round_robin", "cache_aware", "power_of_two", "least_loaded", "consistent_hash"] = (
        "least_loaded"
    )
    """How the router chooses pods. `power_of_two` chooses by chance today: vLLM serves no load endpoint for it."""
    placement: Placement = Field(default_factory=Placement)
    """Where router pods may run."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of the router container. Without a CPU request the router starves next to busy vLLM pods, so the
    operator requests 250m and 256Mi unless you say otherwise."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """What has no field: `metadata` and `spec` of a pod, merged into the router's pods (strategic merge)."""
    service: RouterService = Field(default_factory=RouterService)
    """The Service that clients talk to."""
