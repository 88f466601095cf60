"""`placement` and `accelerator` of a role, as the scheduling fields of a pod."""

from typing import Any

from pdinference.api.names import LABEL_REVISION, Role, role_selector
from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.v1alpha1.role import Accelerator, Placement, Resources, RoleSpec

Fields = dict[str, Any]


def as_api(part: ApiModel) -> Fields:
    """A part of the spec in the API's own form, less what is not set."""
    return part.model_dump(by_alias=True, exclude_none=True, mode="json")


def scheduling(name: str, role: Role, placement: Placement, accelerator: Accelerator | None = None) -> Fields:
    """`nodeSelector`, `affinity`, `tolerations` and `topologySpreadConstraints` of a role's pods."""
    return {
        "nodeSelector": placement.node_selector,
        "affinity": _affinity(placement, accelerator),
        "tolerations": [as_api(t) for t in placement.tolerations] + _device_tolerations(accelerator),
        "topologySpreadConstraints": [
            {
                **as_api(spread),
                "labelSelector": {"matchLabels": role_selector(name, role)},
                # Two revisions side by side are spread each by itself.
                **({"matchLabelKeys": [LABEL_REVISION]} if role is not Role.ROUTER else {}),
            }
            for spread in placement.topology_spread
        ],
    }


def container_resources(spec: RoleSpec) -> Fields:
    """`resources` of the vLLM container: the user's, and one device for each tensor-parallel rank."""
    resources = as_api(spec.resources)
    if spec.accelerator.type == "GPU":
        devices = {spec.accelerator.resource_name: str(spec.parallelism.tensor)}
        # Requests of extended resources follow the limits; both are written so that what one reads is what one gets.
        resources = {kind: {**resources.get(kind, {}), **devices} for kind in ("requests", "limits")}
    return {kind: amounts for kind, amounts in resources.items() if amounts}


def router_resources(resources: Resources) -> Fields:
    """`resources` of the router container; a request of its own keeps it alive next to busy vLLM pods."""
    amounts = as_api(resources)
    requests = {"cpu": "250m", "memory": "256Mi", **amounts.get("requests", {})}
    return {"requests": requests, **({"limits": amounts["limits"]} if amounts.get("limits") else {})}


def _affinity(placement: Placement, accelerator: Accelerator | None) -> Fields:
    node_affinity = as_api(placement.node_affinity) if placement.node_affinity else {}
    if accelerator is not None and accelerator.products:
        wanted = {"key": accelerator.product_label, "operator": "In", "values": list(accelerator.products)}
        required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
        # Terms are alternatives, so the product belongs into each.
        terms = required.get("nodeSelectorTerms", [{"matchExpressions": []}])
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchExpressions": [*term["matchExpressions"], wanted]} for term in terms]
        }
    return {"nodeAffinity": node_affinity} if node_affinity else {}


def _device_tolerations(accelerator: Accelerator | None) -> list[Fields]:
    """GPU nodes are usually tainted with the name of their resource, to keep other pods off."""
    if accelerator is None or accelerator.type == "CPU":
        return []
    return [{"key": accelerator.resource_name, "operator": "Exists", "effect": "NoSchedule"}]
