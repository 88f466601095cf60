"""`accelerator` of a role: which devices its pods get, and how they ask for them."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, LabelValues, Matches, ObjectName, QualifiedName, Quantity, Rule

MAX_CLAIMED = 32
"""Devices that one ResourceClaim can hold (AllocationResultsMaxSize in k8s.io/api/resource/v1)."""

_RESOURCE_NAME = "nvidia.com/gpu"

Selector = Annotated[str, Field(min_length=1, max_length=2048)]
Attribute = Annotated[
    str,
    Field(max_length=96),
    Matches(
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/[A-Za-z_][A-Za-z0-9_]*$",
        "Write an attribute with its domain, for example resource.kubernetes.io/pcieRoot.",
    ),
]


class Devices(ApiModel):
    """Devices that each pod claims by dynamic resource allocation, as many as it has ranks."""

    device_class_name: ObjectName
    """DeviceClass to choose from, for example `gpu.nvidia.com`; `kubectl get deviceclasses` lists them."""
    selectors: Annotated[list[Selector], Field(max_length=8)] = Field(default_factory=list)
    """CEL expressions on `device`, all of which must hold for each device, for example
    `device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H100 80GB HBM3'`."""
    match_attribute: Attribute | None = None
    """Attribute that must be the same for all devices of a pod, for example `resource.kubernetes.io/pcieRoot`."""


class Accelerator(ApiModel):
    """The device that runs the model."""

    type: Literal["GPU", "CPU"] = "GPU"
    """GPU: any device that a device plug-in offers as an extended resource. CPU: vLLM's CPU build, without a device."""
    resource_name: QualifiedName = _RESOURCE_NAME
    """Extended resource to request, one for each rank: for example `amd.com/gpu`. Nodes' taints of this name are
    tolerated. Not used with type CPU, nor with devices."""
    products: LabelValues = Field(default_factory=list)
    """Products that pods may run on: values of the node label `productLabel`, for example `NVIDIA-H100-80GB-HBM3`.
    Default: any for P; for D those of P, if resourceName is the same and D has no other node selector or affinity than
    P."""
    product_label: QualifiedName = "nvidia.com/gpu.product"
    """Node label that names the product. The default is what NVIDIA's GPU feature discovery writes."""
    memory: Quantity | None = None
    """Memory of one device, for the memory plan, for example 80Gi. Default: that of the smallest of products."""
    devices: Devices | None = None
    """Exact devices by dynamic resource allocation (Kubernetes 1.34 or later) instead of an extended resource. Taints
    of their nodes go into placement.tolerations."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.type != 'CPU' || !has(self.products) || self.products.size() == 0",
            holds=lambda a: a.type != "CPU" or not a.products,
            field="products",
            message="Type CPU has no accelerator products; remove them, or choose nodes with placement.nodeSelector.",
        ),
        Rule(
            cel="self.resourceName.contains('/')",
            holds=lambda a: "/" in a.resource_name,
            field="resourceName",
            message="An extended resource has a domain, for example nvidia.com/gpu.",
        ),
        Rule(
            cel="!has(self.devices) || self.type != 'CPU'",
            holds=lambda a: a.devices is None or a.type != "CPU",
            field="devices",
            message="Type CPU runs without devices; remove them.",
        ),
        Rule(
            cel=f"!has(self.devices) || self.resourceName == '{_RESOURCE_NAME}'",
            holds=lambda a: a.devices is None or a.resource_name == _RESOURCE_NAME,
            field="resourceName",
            message="Devices are claimed instead of an extended resource; remove resourceName or devices.",
        ),
        Rule(
            cel="!has(self.devices) || !has(self.products) || self.products.size() == 0",
            holds=lambda a: a.devices is None or not a.products,
            field="products",
            message="Products are a label of nodes; choose among devices by devices.selectors instead.",
        ),
    )
