"""Which requests and limits of a container the API server accepts.

Source: `ValidateContainerResourceRequirements` in pkg/apis/core/validation/validation.go of Kubernetes. The forms of
names and quantities are checked before.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdinference.api.quantities import quantity

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES: Final = re.compile(r"hugepages-[1-9][0-9]{0,17}(?:[KMGTPE]i)?", re.ASCII)


def resource_faults(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Path within `resources`, and message, of each amount that the API server would reject."""
    together = {*requests, *limits}
    for kind, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            if fault := _fault_of_one(name, amount):
                yield f"{kind}.{name}", fault
    if "cpu" not in together and "memory" not in together:
        for name in filter(_is_huge_page, limits):
            yield f"limits.{name}", "Set cpu or memory, too: huge pages need one of them."
    for name in sorted(requests):
        if fault := _fault_of_both(name, requests[name], limits.get(name)):
            yield f"requests.{name}", fault


def is_of_containers(name: str) -> bool:
    """Whether containers can have a resource of this name."""
    return name in _STANDARD or _HUGE_PAGES.fullmatch(name) is not None or "/" in name


def _is_device(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def _is_huge_page(name: str) -> bool:
    return name.startswith("hugepages-")


def _fault_of_one(name: str, amount: Any) -> str:
    if not is_of_containers(name):
        return f"No container can request this. Write {', '.join(_STANDARD)}, or a device with its domain."
    if name.startswith("requests."):
        return "The prefix requests. belongs to quotas. Remove it."
    value = quantity(amount)
    if value is None or value < 0:
        return f"{amount} is not an amount. Write for example 500m, 2 or 16Gi."
    if _is_device(name) and value % 1:
        return f"{amount} is not a whole number of devices."
    page = (quantity(name.removeprefix("hugepages-")) or 0) if _is_huge_page(name) else 0
    if page and (value == 0 or value % page):
        return f"{amount} is not a whole number of these pages. Write a multiple of {name.removeprefix('hugepages-')}."
    return ""


def _fault_of_both(name: str, requested: Any, limit: Any) -> str:
    more, bound = quantity(requested) or 0, quantity(limit)
    if _is_device(name) or _is_huge_page(name):
        if limit is None:
            return "Set the same limit: this resource cannot be shared."
        return "" if more == bound else f"{requested} is not the limit of {limit}. Write the same amount in both."
    if bound is not None and more > bound:
        return f"{requested} exceeds the limit of {limit}. Lower the request, or raise the limit."
    return ""
