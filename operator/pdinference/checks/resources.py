"""Requests and limits that the API server would reject in a pod after it has accepted the resource."""

from collections.abc import Iterator

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.roles.role import Resources
from pdinference.api.validation import Problem


def resource_problems(spec: Spec) -> Iterator[Problem]:
    """Requests that exceed their limits."""
    for name, resources in (
        ("parameter", spec.parameter.resources),
        ("decode", spec.decode.resources),
        ("router", spec.router.resources),
    ):
        yield from problems_of_resources(f"spec.{name}.resources", resources)


def problems_of_resources(field: str, resources: Resources) -> Iterator[Problem]:
    """Requests of one container that exceed their limits; `field` is its `resources`."""
    for name in sorted(resources.requests.keys() & resources.limits.keys()):
        requested, limit = resources.requests[name], resources.limits[name]
        if (quantity(requested) or 0) > (quantity(limit) or 0):
            yield Problem(
                f"{field}.requests.{name}",
                f"{requested} exceeds the limit of {limit}. Lower the request, or raise the limit.",
            )
