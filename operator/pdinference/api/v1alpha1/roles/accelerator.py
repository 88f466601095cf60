"""`accelerator` of a role: the devices of its pods, and how pods request them.

Tests: tests/api/test_validation.py, tests/integration/test_crd.py
"""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from pdinference.api.v1alpha1.base import (
    ApiModel,
    ExtendedResource,
    LabelValues,
    Matches,
    ObjectName,
    QualifiedName,
    Quantity,
    Rule,
)

MAX_CLAIMED = 32
"""Devices that one ResourceClaim can hold (AllocationResultsMaxSize in k8s.io/api/resource/v1)."""

WHOLE_GPUS = "nvidia.com/gpu"

_LONGEST_DOMAIN = 63
"""Characters before the slash of an attribute (DeviceMaxDomainLength in k8s.io/api/resource/v1)."""


def _domain_fits(attribute: str) -> str:
    if len(attribute.partition("/")[0]) > _LONGEST_DOMAIN:
        raise ValueError(f"Use at most {_LONGEST_DOMAIN} characters before the slash.")
    return attribute


Selector = Annotated[str, Field(min_length=1, max_length=2048)]
Attribute = Annotated[
    str,
    Field(max_length=96),
    Matches(
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/[A-Za-z_][A-Za-z0-9_]{0,31}$",
        "Write an attribute with a domain, for example resource.kubernetes.io/pcieRoot.",
    ),
    AfterValidator(_domain_fits),
]

Maker = Literal["AMD", "NVIDIA", "another", "unknown"]


class Devices(ApiModel):
    """Devices that each pod claims through dynamic resource allocation, one for each rank."""

    device_class_name: ObjectName
    """DeviceClass, for example `gpu.nvidia.com`. `kubectl get deviceclasses` lists the classes of the cluster."""
    selectors: Annotated[list[Selector], Field(max_length=8)] = Field(default_factory=list)
    """CEL expressions on `device`. All must be true for each device, for example
    `device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H100 80GB HBM3'`."""
    match_attribute: Attribute | None = None
    """Attribute that must be equal on all devices of a pod, for example `resource.kubernetes.io/pcieRoot`."""


class Accelerator(ApiModel):
    """The devices that run the model."""

    type: Literal["GPU", "CPU"] = "GPU"
    """GPU: a device that a device plugin offers as an extended resource. CPU: vLLM's CPU build, without devices."""
    resource_name: ExtendedResource = WHOLE_GPUS
    """Extended resource to request, one for each rank. Pods tolerate node taints with this key. Ignored with type CPU
    and with devices."""
    products: LabelValues = Field(default_factory=list)
    """Products that pods may run on: values of the node label `productLabel`, for example `NVIDIA-H100-80GB-HBM3`.
    Default for P: any. Default for D: those of P, if resourceName, node selector and affinity are the same."""
    product_label: QualifiedName = "nvidia.com/gpu.product"
    """Node label with the product name. The default label comes from NVIDIA GPU Feature Discovery."""
    memory: Quantity | None = None
    """Memory of one device for the memory plan. Default: the memory of the smallest product."""
    devices: Devices | None = None
    """Devices to claim through dynamic resource allocation (Kubernetes 1.34 or later). Add the taints of their nodes to
    placement.tolerations."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.type != 'CPU' || !has(self.products) || self.products.size() == 0",
            holds=lambda a: a.type != "CPU" or not a.products,
            field="products",
            message="Type CPU takes no products. Remove products; select nodes with placement.nodeSelector.",
        ),
        Rule(
            cel="!has(self.devices) || self.type != 'CPU'",
            holds=lambda a: a.devices is None or a.type != "CPU",
            field="devices",
            message="Type CPU takes no devices. Remove devices.",
        ),
        Rule(
            cel=f"!has(self.devices) || self.resourceName == '{WHOLE_GPUS}'",
            holds=lambda a: a.devices is None or a.resource_name == WHOLE_GPUS,
            field="resourceName",
            message="devices and resourceName exclude each other. Remove one of them.",
        ),
        Rule(
            cel="!has(self.devices) || !has(self.products) || self.products.size() == 0",
            holds=lambda a: a.devices is None or not a.products,
            field="products",
            message="devices and products exclude each other. Remove products; select devices with devices.selectors.",
        ),
    )

    @property
    def requested(self) -> str:
        """The name by which pods request devices."""
        return self.devices.device_class_name if self.devices else self.resource_name

    @property
    def is_slice(self) -> bool:
        """Whether a device is a part of a GPU (MIG), with a part of the memory of its product."""
        return self.requested.startswith("nvidia.com/mig-")

    @property
    def maker(self) -> Maker:
        """Who makes the devices, by that name. A device class may have any name."""
        if "amd.com" in self.requested:
            return "AMD"
        if "nvidia.com" in self.requested:
            return "NVIDIA"
        return "unknown" if self.devices else "another"
