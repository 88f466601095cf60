"""`spec.router`: the router in front of P and D, and its Service."""

from typing import Annotated, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, ImageReference, QualifiedName
from pdinference.api.v1alpha1.roles.role import Placement, PodTemplate, Resources

RouterPolicy = Literal["random", "round_robin", "cache_aware", "power_of_two", "least_loaded", "consistent_hash"]


class RouterService(ApiModel):
    """The Service in front of the router. It has the name of the PDInference."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    port: Annotated[int, Field(ge=1, le=65535)] = 80
    """Port that clients connect to."""
    annotations: Annotated[dict[QualifiedName, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Annotations on the Service, for example for a cloud's load balancer."""


class Router(ApiModel):
    """The router sends each request to a P pod and then to a D pod."""

    image: ImageReference | None = None
    """Image with vllm-router. Default: the image in the operator's settings. The chart value `policy.routerImages` must
    allow any other image."""
    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """Number of router pods."""
    policy: RouterPolicy = "least_loaded"
    """Load-balancing policy of the router. `power_of_two` currently chooses at random, because vLLM serves no load
    endpoint for it."""
    placement: Placement = Field(default_factory=Placement)
    """Where router pods may run."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of the router container. Default: requests of 250m and 256Mi, because the router would starve next
    to busy vLLM pods without a CPU request."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """Overlay with `metadata` and `spec` of a pod, for settings without a field of their own. It is merged into the
    router's pods (strategic merge)."""
    service: RouterService = Field(default_factory=RouterService)
    """The Service that clients use."""
