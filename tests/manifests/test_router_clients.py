"""Who may connect to the router: its NetworkPolicy and its Service."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api import names
from pdinference.api.v1alpha1 import PDInference
from pdinference.manifests import RenderSettings, render
from tests.manifests.rendering import SETTINGS, children

Make = Callable[..., PDInference]
Json = dict[str, Any]

SAME_NAMESPACE: Json = {"podSelector": {}}
RUNNERS: Json = {"podSelector": {"matchExpressions": [{"key": names.LABEL_BATCH, "operator": "Exists"}]}}
PORT_OF_CLIENTS = [{"port": "http", "protocol": "TCP"}]
PORT_OF_METRICS = [{"port": "metrics", "protocol": "TCP"}]
EXPOSED = [{"type": "NodePort"}, {"type": "LoadBalancer"}]


def namespace(name: str) -> Json:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def ingress(resource: PDInference, settings: RenderSettings = SETTINGS) -> list[Json]:
    policies = {o["metadata"]["name"]: o for o in render(resource, settings).objects if o["kind"] == "NetworkPolicy"}
    spec = policies["llama-router"]["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["podSelector"] == {"matchLabels": names.role_selector("llama", names.Role.ROUTER)}
    rules: list[Json] = spec["ingress"]
    return rules


def service(resource: PDInference) -> Json:
    spec: Json = children(resource)["Service", "llama"]["spec"]
    return spec


def test_pods_of_the_same_namespace_connect_by_default(resource: Make) -> None:
    assert ingress(resource()) == [{"ports": PORT_OF_CLIENTS, "from": [SAME_NAMESPACE]}]


def test_namespaces_of_the_installation_connect_by_default(resource: Make) -> None:
    settings = RenderSettings(client_namespaces=("ingress-nginx", "gateway"))
    (rule,) = ingress(resource(), settings)
    assert rule["from"] == [SAME_NAMESPACE, namespace("ingress-nginx"), namespace("gateway")]


def test_namespaces_of_gateways_connect_by_default(resource: Make) -> None:
    parents = [{"name": "own"}, {"name": "public", "namespace": "edge"}, {"name": "internal", "namespace": "edge"}]
    (rule,) = ingress(resource(router={"route": {"parentRefs": parents}}), RenderSettings(client_namespaces=("edge",)))
    assert rule["from"] == [SAME_NAMESPACE, namespace("edge")]
    (rule,) = ingress(resource(router={"route": {"parentRefs": parents}, "clients": []}))
    assert rule["from"] == [RUNNERS]


@pytest.mark.parametrize("exposed", EXPOSED, ids=lambda service: service["type"])
def test_everyone_connects_by_default_where_the_service_is_for_clients_outside(resource: Make, exposed: Json) -> None:
    assert ingress(resource(router={"service": exposed})) == [{"ports": PORT_OF_CLIENTS}]


@pytest.mark.parametrize(
    ("client", "peer"),
    [
        ({}, SAME_NAMESPACE),
        ({"podLabels": {"app": "chat"}}, {"podSelector": {"matchLabels": {"app": "chat"}}}),
        ({"namespace": "gateway"}, {**namespace("gateway"), "podSelector": {}}),
        (
            {"namespace": "gateway", "podLabels": {"app": "envoy"}},
            {**namespace("gateway"), "podSelector": {"matchLabels": {"app": "envoy"}}},
        ),
        ({"cidr": "192.0.2.0/24"}, {"ipBlock": {"cidr": "192.0.2.0/24"}}),
        ({"cidr": "2001:DB8:0::/48"}, {"ipBlock": {"cidr": "2001:db8::/48"}}),
    ],
)
@pytest.mark.parametrize("exposed", [{"type": "ClusterIP"}, *EXPOSED], ids=lambda service: service["type"])
def test_named_clients_connect_and_no_others(resource: Make, client: Json, peer: Json, exposed: Json) -> None:
    settings = RenderSettings(client_namespaces=("ingress-nginx",))
    (rule,) = ingress(resource(router={"clients": [client], "service": exposed}), settings)
    assert rule == {"ports": PORT_OF_CLIENTS, "from": [RUNNERS, peer]}


def test_an_empty_list_admits_batches_only(resource: Make) -> None:
    """An empty `from` would admit everyone."""
    (rule,) = ingress(resource(router={"clients": []}))
    assert rule["from"] == [RUNNERS]


def test_the_label_of_runners_is_on_their_pods_and_on_no_router(resource: Make) -> None:
    assert names.LABEL_BATCH in names.batch_labels("job")
    router = children(resource())["Deployment", "llama-router"]["spec"]["template"]["metadata"]["labels"]
    assert names.LABEL_BATCH not in router


@pytest.mark.parametrize("router", [{}, {"clients": []}, {"service": {"type": "LoadBalancer"}}], ids=str)
def test_the_operator_and_prometheus_read_metrics_and_send_no_requests(resource: Make, router: Json) -> None:
    settings = RenderSettings(
        operator_namespace="system", operator_labels=(("app", "operator"),), prometheus_namespace="monitoring"
    )
    clients, metrics = ingress(resource(router=router), settings)
    operator = {**namespace("system"), "podSelector": {"matchLabels": {"app": "operator"}}}
    assert metrics == {"ports": PORT_OF_METRICS, "from": [operator, namespace("monitoring")]}
    assert clients["ports"] == PORT_OF_CLIENTS
    assert not [peer for peer in clients.get("from", ()) if peer in metrics["from"]]


def test_the_ports_are_those_of_the_pods(resource: Make) -> None:
    (router,) = children(resource())["Deployment", "llama-router"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in router["ports"]}
    assert ports == {"http": names.ROUTER_PORT, "metrics": names.ROUTER_STATE_PORT}


@pytest.mark.parametrize("exposed", EXPOSED, ids=lambda service: service["type"])
def test_nodes_keep_the_addresses_that_the_policy_compares(resource: Make, exposed: Json) -> None:
    ranges = resource(router={"service": exposed, "clients": [{"namespace": "a"}, {"cidr": "192.0.2.0/24"}]})
    assert service(ranges)["externalTrafficPolicy"] == "Local"


@pytest.mark.parametrize(
    "router",
    [
        {"service": {"type": "LoadBalancer"}},
        {"service": {"type": "LoadBalancer"}, "clients": [{"namespace": "gateway"}]},
        {"service": {"type": "NodePort"}, "clients": [{"cidr": "0.0.0.0/0"}]},
        {"clients": [{"cidr": "192.0.2.0/24"}]},
    ],
    ids=str,
)
def test_every_node_accepts_connections_where_no_address_is_compared(resource: Make, router: Json) -> None:
    """With ClusterIP the API server would refuse the field."""
    assert "externalTrafficPolicy" not in service(resource(router=router))


@pytest.mark.parametrize(
    ("router", "port"),
    [({}, 80), ({"tls": {"secretName": "a"}}, 443), ({"tls": {"secretName": "a"}, "service": {"port": 80}}, 80)],
)
def test_the_port_of_the_service_follows_tls(resource: Make, router: Json, port: int) -> None:
    (entry,) = service(resource(router=router))["ports"]
    assert (entry["port"], entry["targetPort"]) == (port, "http")
