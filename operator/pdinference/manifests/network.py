"""Services, NetworkPolicies and PodDisruptionBudgets of the pods."""

from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.connectors.registry import connector_of
from pdinference.manifests.children import child
from pdinference.manifests.pods.placement import as_api
from pdinference.manifests.settings import RenderSettings
from pdinference.manifests.templates import Manifest
from pdinference.manifests.workloads import further_nodes


def router_service(resource: PDInference) -> Manifest:
    """The Service for clients."""
    return child(
        resource,
        Role.ROUTER,
        "router-service",
        object=names.router_service(resource.metadata.name),
        service=as_api(resource.spec.router.service),
        port=resource.spec.router.port,
    )


def parameter_service(resource: PDInference) -> Manifest:
    """The headless Service with the DNS names of P pods; for multi-node instances also of pods that are not ready."""
    return child(resource, Role.PARAMETER, "parameter-service", early=bool(further_nodes(resource)))


def engine_network_policy(resource: PDInference, settings: RenderSettings, role: Role) -> Manifest:
    """Allows connections to the pods of a role only from the router, the other role, the operator and Prometheus."""
    name, ports = resource.metadata.name, connector_of(resource.spec.transfer).ports(role)
    peers = [Role.DECODE if role is Role.PARAMETER else Role.PARAMETER]
    if role is Role.PARAMETER and further_nodes(resource):
        peers.append(role)
    return child(
        resource,
        role,
        "engine-networkpolicy",
        pods=_all_pods(resource, role),
        router_selector=names.role_selector(name, Role.ROUTER),
        router_ports=[names.ENGINE_PORT_NAME, *(port.name for port in ports if port.router)],
        peers=[_all_pods(resource, peer) for peer in peers],
        prometheus_namespace=settings.prometheus_namespace,
        operator={"namespace": settings.operator_namespace, "labels": dict(settings.operator_labels)},
    )


def disruption_budget(resource: PDInference, role: Role) -> Manifest:
    """The PodDisruptionBudget of a role: at most one pod is evicted at a time."""
    return child(resource, role, "poddisruptionbudget", pods=_all_pods(resource, role))


def _all_pods(resource: PDInference, role: Role) -> dict[str, Any]:
    return names.pods_of(resource.metadata.name, role, nodes=resource.spec.parameter.parallelism.nodes)
