"""Services, NetworkPolicies and PodDisruptionBudgets of the pods.

Tests: tests/manifests/test_router_clients.py, tests/manifests/test_render.py, tests/manifests/test_nodes.py
"""

from typing import Any

from pdinference.api import names
from pdinference.api.engines import LAST_ENGINE_PORT
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.router import Client
from pdinference.engine.connectors.registry import connector_of
from pdinference.manifests.children import child
from pdinference.manifests.pods.placement import as_api
from pdinference.manifests.settings import RenderSettings
from pdinference.manifests.templates import Manifest
from pdinference.manifests.workloads import further_nodes, has_stateful_sets

_RUNNERS = {"podSelector": {"matchExpressions": [{"key": names.LABEL_BATCH, "operator": "Exists"}]}}
"""The runners of PDBatches, which may use every PDInference of their namespace."""


def router_service(resource: PDInference) -> Manifest:
    """The Service for clients."""
    router = resource.spec.router
    admits_ranges = any(client.cidr for client in router.clients or ()) and not router.admits_every_address
    return child(
        resource,
        Role.ROUTER,
        "router-service",
        object=names.router_service(resource.metadata.name),
        service=as_api(router.service),
        port=router.port,
        port_name="https" if router.tls else names.ROUTER_PORT_NAME,
        keeps_addresses=router.service.type != "ClusterIP" and admits_ranges,
    )


def router_network_policy(resource: PDInference, settings: RenderSettings) -> Manifest:
    """Allows connections to the router from clients, and to its metrics from the operator and Prometheus."""
    return child(
        resource,
        Role.ROUTER,
        "router-networkpolicy",
        clients=_clients(resource, settings),
        metrics_readers=_metrics_readers(settings),
    )


def engine_services(resource: PDInference) -> tuple[Manifest, ...]:
    """The headless Service of each role with StatefulSets: the DNS names of its pods.

    For instances on several nodes it has also those of pods that are not ready.
    """
    return tuple(
        child(resource, role, "engine-service", early=bool(further_nodes(resource, role)))
        for role in resource.spec.workload_roles
        if has_stateful_sets(resource, role)
    )


def engine_network_policy(resource: PDInference, settings: RenderSettings, role: Role) -> Manifest:
    """Allows connections to the pods of a role only from the router, the other role, the operator and Prometheus."""
    name, ports = resource.metadata.name, connector_of(resource.spec).ports(role)
    peers = [Role.DECODE if role is Role.PARAMETER else Role.PARAMETER]
    if further_nodes(resource, role):
        peers.append(role)
    return child(
        resource,
        role,
        "engine-networkpolicy",
        pods=_all_pods(resource, role),
        router_selector=names.role_selector(name, Role.ROUTER),
        engine_port=_engine_port(role),
        router_ports=[port.name for port in ports if port.router],
        peers=[_all_pods(resource, peer) for peer in peers],
        metrics_readers=_metrics_readers(settings),
    )


def _engine_port(role: Role) -> Manifest:
    """The ports of vLLM's API. Pods of D may have several engines; after a change of the path, those of old pods."""
    if role is Role.PARAMETER:
        return {"port": names.ENGINE_PORT_NAME, "protocol": "TCP"}
    return {"port": names.ENGINE_PORT, "endPort": LAST_ENGINE_PORT, "protocol": "TCP"}


def disruption_budget(resource: PDInference, role: Role) -> Manifest:
    """The PodDisruptionBudget of a role: at most one pod is evicted at a time."""
    return child(resource, role, "poddisruptionbudget", pods=_all_pods(resource, role))


def _clients(resource: PDInference, settings: RenderSettings) -> list[Manifest] | None:
    """The peers that may connect to the router; None for everyone."""
    router = resource.spec.router
    if router.clients is not None:
        return [_RUNNERS, *map(_client, router.clients)]
    if router.service.type != "ClusterIP":
        return None
    parents = router.route.parent_refs if router.route is not None else ()
    gateways = [parent.namespace for parent in parents if parent.namespace is not None]
    return [{"podSelector": {}}, *map(_namespace, dict.fromkeys((*settings.client_namespaces, *gateways)))]


def _client(client: Client) -> Manifest:
    if client.cidr is not None:
        return {"ipBlock": {"cidr": client.cidr}}
    pods = {"podSelector": {"matchLabels": client.pod_labels} if client.pod_labels else {}}
    return pods if client.namespace is None else _namespace(client.namespace) | pods


def _metrics_readers(settings: RenderSettings) -> list[Manifest]:
    """The operator's pods and the namespace of Prometheus, as far as they are known."""
    operator = {"podSelector": {"matchLabels": dict(settings.operator_labels)}}
    return [
        *([_namespace(settings.operator_namespace) | operator] if settings.operator_namespace else []),
        *([_namespace(settings.prometheus_namespace)] if settings.prometheus_namespace else []),
    ]


def _namespace(name: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _all_pods(resource: PDInference, role: Role) -> dict[str, Any]:
    nodes = 1 + len(further_nodes(resource, role)) if role in ENGINE_ROLES else 1
    return names.pods_of(resource.metadata.name, role, nodes=nodes)
