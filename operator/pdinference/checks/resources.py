"""Requests and limits that the API server would reject in a pod after it has accepted the resource.

Tests: tests/checks/test_examine.py
"""

from collections.abc import Iterator

from pdinference.api.container_resources import resource_faults
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.roles.accelerator import MAX_CLAIMED
from pdinference.api.v1alpha1.roles.role import Resources
from pdinference.api.validation import Problem


def resource_problems(spec: Spec) -> Iterator[Problem]:
    """Requests that exceed their limits, and claims that cannot be met."""
    for name, resources in (
        ("parameter", spec.parameter.resources),
        ("decode", spec.decode.resources),
        ("router", spec.router.resources),
    ):
        yield from problems_of_resources(f"spec.{name}.resources", resources)
    if spec.host_local is not None and spec.decode.accelerator.devices is not None:
        yield from _shared_claim_problems(spec)


def _shared_claim_problems(spec: Spec) -> Iterator[Problem]:
    """Devices that P and D of a pod cannot claim together. CEL cannot compare the devices of both roles."""
    if spec.parameter.accelerator.devices != spec.decode.accelerator.devices:
        yield Problem(
            "spec.decode.accelerator.devices",
            "With the path HostLocal, P and D have one claim. Write the same devices as in spec.parameter.accelerator.",
        )
    if (count := spec.devices_per_pod(Role.DECODE)) > MAX_CLAIMED:
        yield Problem(
            "spec.transfer.hostLocal",
            f"A pod would claim {count} devices, and a claim can have {MAX_CLAIMED}. Lower the numbers here, or tensor "
            "of the roles.",
        )


def problems_of_resources(field: str, resources: Resources) -> Iterator[Problem]:
    """Amounts of one container that the API server would reject; `field` is its `resources`."""
    for path, message in resource_faults(resources.requests, resources.limits):
        yield Problem(f"{field}.{path}", message)
