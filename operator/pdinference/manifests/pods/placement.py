"""Scheduling fields of a pod, from `placement` and `accelerator` of a role.

Tests: tests/manifests/test_render.py
"""

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from pdinference.api import names
from pdinference.api.names import (
    LABEL_POD_INDEX,
    LABEL_QUEUE,
    LABEL_REVISION,
    Role,
    node_labels,
    role_labels,
    role_selector,
)
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.base import ApiModel
from pdinference.api.v1alpha1.roles.accelerator import Accelerator
from pdinference.api.v1alpha1.roles.role import Placement, Resources, RoleSpec
from pdinference.api.v1alpha1.transfer import RDMA
from pdinference.manifests.pods.devices import container_claims, extended_resources, pod_claims

Fields = dict[str, Any]


def as_api(part: ApiModel) -> Fields:
    """A part of the spec as API JSON, without fields that are not set."""
    return part.model_dump(by_alias=True, exclude_none=True, mode="json")


def pod_labels(name: str, role: Role, placement: Placement) -> dict[str, str]:
    """Labels of a role's pods, including the queue of Kueue."""
    queue = {} if placement.queue_name is None else {LABEL_QUEUE: placement.queue_name}
    return {**role_labels(name, role), **queue}


def engine_scheduling(resource: PDInference, role: Role, spec: RoleSpec, node_rank: int) -> Fields:
    """Scheduling fields of P or D pods on one node of an instance."""
    fields = scheduling(resource.metadata.name, role, spec.placement, node_labels(role, node_rank) if node_rank else {})
    return fields | {
        "affinity": _affinity(resource, role, spec),
        "tolerations": [*fields["tolerations"], *_device_tolerations(spec.accelerator)],
        "resourceClaims": pod_claims(spec),
    }


def router_scheduling(resource: PDInference, revision: str) -> Fields:
    """Scheduling fields of router pods. They avoid a node that has one of this revision, if there is another node.

    A preference for the topology spread of the pod would replace the scheduler's own, which also knows zones.
    """
    name, placement = resource.metadata.name, resource.spec.router.placement
    fields = scheduling(name, Role.ROUTER, placement)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": role_selector(name, Role.ROUTER, revision)},
    }
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    return fields | {"affinity": fields["affinity"] | {"podAntiAffinity": apart}}


def scheduling(name: str, role: Role, placement: Placement, node: Mapping[str, str] = MappingProxyType({})) -> Fields:
    """Scheduling fields of a role's pods, or of the pods with these node labels. Empty fields are left out."""
    return {
        "nodeSelector": placement.node_selector,
        "affinity": {"nodeAffinity": as_api(placement.node_affinity)} if placement.node_affinity else {},
        "tolerations": [as_api(toleration) for toleration in placement.tolerations],
        "topologySpreadConstraints": [
            {
                **as_api(spread),
                "labelSelector": {"matchLabels": {**role_selector(name, role), **node}},
                # The pods of each revision are spread independently.
                **({"matchLabelKeys": [LABEL_REVISION]} if role is not Role.ROUTER else {}),
            }
            for spread in placement.topology_spread
        ],
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
        "schedulerName": placement.scheduler_name,
    }


def container_resources(spec: RoleSpec, rdma: RDMA | None) -> Fields:
    """`resources` of the vLLM container: of the user, devices of ranks and RDMA, and memory of the CPU tier."""
    resources = with_devices(as_api(spec.resources), spec, rdma, spec.parallelism.devices_per_pod)
    if spec.kv_tiers and not any("memory" in amounts for amounts in resources.values()):
        # vLLM allocates the memory at start. Without a request, the node might not have enough.
        resources["requests"] = {**resources.get("requests", {}), "memory": spec.kv_tiers.cpu.size}
    resources["claims"] = container_claims(spec)
    return {kind: amounts for kind, amounts in resources.items() if amounts}


def with_devices(resources: Fields, spec: RoleSpec, rdma: RDMA | None, devices: int) -> Fields:
    """`resources` of a container with its extended resources, if any."""
    amounts = extended_resources(spec, rdma, devices)
    # Requests of extended resources default to the limits. Both are written for clarity.
    kinds = ("requests", "limits")
    return {kind: {**resources.get(kind, {}), **amounts} for kind in kinds} if amounts else resources


def router_resources(resources: Resources) -> Fields:
    """`resources` of the router container. The default CPU request protects it from busy vLLM pods."""
    return with_default_requests(resources, {"cpu": "250m", "memory": "256Mi"})


def with_default_requests(resources: Resources, defaults: Mapping[str, str]) -> Fields:
    """`resources` of a container, with requests of defaults up to their limits where the user has set none."""
    limits = resources.limits
    requests = {
        **{name: min(amount, limits.get(name, amount), key=_value) for name, amount in defaults.items()},
        **resources.requests,
    }
    return {"requests": requests, **({"limits": dict(limits)} if limits else {})}


def _value(amount: str) -> Decimal:
    return quantity(amount) or Decimal()


def _affinity(resource: PDInference, role: Role, spec: RoleSpec) -> Fields:
    node = _node_affinity(spec)
    pod = _pod_affinity(resource, role, spec)
    return {name: affinity for name, affinity in (("nodeAffinity", node), ("podAffinity", pod)) if affinity}


def _node_affinity(spec: RoleSpec) -> Fields:
    affinity = as_api(spec.placement.node_affinity) if spec.placement.node_affinity else {}
    if not spec.accelerator.products:
        return affinity
    wanted = {"key": spec.accelerator.product_label, "operator": "In", "values": list(spec.accelerator.products)}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    # Terms are alternatives, so each one must contain the product.
    terms = required.get("nodeSelectorTerms", [{"matchExpressions": []}])
    return affinity | {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [*term["matchExpressions"], wanted]} for term in terms]
        }
    }


def _pod_affinity(resource: PDInference, role: Role, spec: RoleSpec) -> Fields:
    """Affinity of pods to the others of their instance, and of D pods to P pods."""
    name, domain = resource.metadata.name, spec.placement.domain
    required: list[Fields] = []
    preferred: list[Fields] = []
    if domain is not None:
        instance = names.pods_of(name, role, nodes=spec.parallelism.nodes)
        required.append(_near(domain, instance, LABEL_REVISION, LABEL_POD_INDEX))
    colocation = resource.spec.colocation
    if role is Role.DECODE and colocation is not None and Role.PARAMETER in resource.spec.workload_roles:
        parameter = {"matchLabels": role_selector(name, Role.PARAMETER)}
        near = _near(colocation.topology_key, parameter, LABEL_REVISION)
        (required if colocation.required else preferred).append(near)
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": term} for term in preferred
        ],
    }
    return {kind: found for kind, found in terms.items() if found}


def _near(topology_key: str, selector: Fields, *same: str) -> Fields:
    """A term of affinity to the pods of a selector with the same values of these labels."""
    return {"topologyKey": topology_key, "labelSelector": selector, "matchLabelKeys": list(same)}


def _device_tolerations(accelerator: Accelerator) -> list[Fields]:
    """Tolerations for GPU nodes, which usually have a taint with the name of their extended resource."""
    if accelerator.type == "CPU" or accelerator.devices is not None:
        return []
    return [{"key": accelerator.resource_name, "operator": "Exists", "effect": "NoSchedule"}]
