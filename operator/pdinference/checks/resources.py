"""Requests and limits that the API server would refuse in a pod, long after the resource was accepted."""

from collections.abc import Iterator

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.roles.role import Resources
from pdinference.api.validation import Problem


def resource_problems(spec: Spec) -> Iterator[Problem]:
    """Requests that are more than their limits."""
    for name, resources in (
        ("parameter", spec.parameter.resources),
        ("decode", spec.decode.resources),
        ("router", spec.router.resources),
    ):
        yield from problems_of_resources(f"spec.{name}.resources", resources)


def problems_of_resources(field: str, resources: Resources) -> Iterator[Problem]:
    """Of one container, which `field` belongs to."""
    for name in sorted(resources.requests.keys() & resources.limits.keys()):
        requested, limit = resources.requests[name], resources.limits[name]
        if (quantity(requested) or 0) > (quantity(limit) or 0):
            yield Problem(
                f"{field}.requests.{name}",
                f"{requested} is more than the limit of {limit}. Lower it, or raise the limit.",
            )
