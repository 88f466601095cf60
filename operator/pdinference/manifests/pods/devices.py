"""Devices of a vLLM container: extended resources or a device claim, and RDMA devices."""

from typing import Any

from pdinference.api import names
from pdinference.api.installation_policy import Policy
from pdinference.api.v1alpha1 import RoleSpec
from pdinference.api.v1alpha1.roles.accelerator import Devices
from pdinference.api.v1alpha1.transfer import RDMA

Fields = dict[str, Any]

_PINS_MEMORY = "IPC_LOCK"


def extended_resources(spec: RoleSpec, rdma: RDMA | None, devices: int) -> dict[str, str]:
    """Amounts of extended resources: the devices of all ranks, and RDMA devices."""
    amounts = {}
    if spec.accelerator.type == "GPU" and spec.accelerator.devices is None:
        amounts[spec.accelerator.resource_name] = str(devices)
    if rdma is not None:
        amounts[rdma.resource_name] = str(rdma.count)
    return amounts


def pod_claims(spec: RoleSpec) -> list[Fields]:
    """`resourceClaims` of the pod, without the template name, which depends on the revision (`name_template`)."""
    return [] if spec.accelerator.devices is None else [{"name": names.DEVICE_CLAIM}]


def container_claims(spec: RoleSpec) -> list[Fields]:
    """`resources.claims` of the vLLM container."""
    return [] if spec.accelerator.devices is None else [{"name": names.DEVICE_CLAIM}]


def name_template(pod: Fields, template: str) -> None:
    """Set the ResourceClaimTemplate of a pod's claim."""
    for claim in pod["spec"].get("resourceClaims", ()):
        if claim["name"] == names.DEVICE_CLAIM:
            claim["resourceClaimTemplateName"] = template


def claimed(spec: RoleSpec, count: int) -> Fields | None:
    """`spec.devices` of the claim of one pod for this number of devices; None without a claim."""
    devices = spec.accelerator.devices
    if devices is None:
        return None
    exactly = {
        "deviceClassName": devices.device_class_name,
        "allocationMode": "ExactCount",
        "count": count,
        **_selectors(devices),
    }
    return {"requests": [{"name": names.DEVICE_CLAIM, "exactly": exactly}], **_constraints(devices)}


def added_capabilities(rdma: RDMA | None, policy: Policy) -> Fields:
    """Capabilities for RDMA, which locks the memory of transfers.

    The capability violates the restricted Pod Security Standard, so pods have it only if the installation allows it.
    Without it, the memlock limit of the node applies, which container runtimes usually set to unlimited.
    """
    return {"add": [_PINS_MEMORY]} if rdma is not None and _PINS_MEMORY in policy.capabilities else {}


def _selectors(devices: Devices) -> Fields:
    selectors = [{"cel": {"expression": expression}} for expression in devices.selectors]
    return {"selectors": selectors} if selectors else {}


def _constraints(devices: Devices) -> Fields:
    attribute = devices.match_attribute
    return {} if attribute is None else {"constraints": [{"matchAttribute": attribute}]}
