"""`spec.router`: the router in front of P and D, and its Service.

Tests: tests/api/test_router.py, tests/checks/test_risks.py, tests/integration/test_crd.py
"""

import ipaddress
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from pdinference.api.names import router_service
from pdinference.api.v1alpha1.base import (
    ApiModel,
    ImageReference,
    LabelValue,
    Matches,
    NamespaceName,
    ObjectName,
    QualifiedName,
    Rule,
    each_once,
)
from pdinference.api.v1alpha1.roles.role import Placement, PodTemplate, Resources
from pdinference.api.v1alpha1.route import Route

RouterPolicy = Literal["random", "round_robin", "cache_aware", "power_of_two", "least_loaded", "consistent_hash"]
WhenNoPrefill = Literal["Serve", "Wait", "Fail"]
Disaggregation = Literal["Always", "Adaptive"]
Priority = Literal["High", "Normal", "Low"]
KeyName = Annotated[
    str,
    Field(max_length=63),
    Matches("^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", "Write a key of the Secret, for example team-a."),
]


def _network(value: str) -> str:
    """The range in its canonical form. API servers refuse other forms, or warn of them."""
    try:
        network = ipaddress.ip_network(value)
    except ValueError:
        raise ValueError(_NO_NETWORK) from None
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError("Write this IPv6 range of IPv4 addresses as a range of IPv4, for example 192.0.2.0/24.")
    return str(network)


_HTTP_PORT = 80
_HTTPS_PORT = 443
_NO_NETWORK = "Write a range of addresses with all bits of the host zero, for example 192.0.2.0/24."
Cidr = Annotated[
    str,
    Field(max_length=49),
    Matches("^[0-9a-fA-F.:]+/(0|[1-9][0-9]{0,2})$", _NO_NETWORK),
    AfterValidator(_network),
]


class ApiKeyLimit(ApiModel):
    """Limits of one client in each router pod, and its place among others. Without a limit, a client is not limited."""

    name: KeyName
    """Name of the client: a key of the Secret."""
    requests_per_minute: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """Maximum number of requests per minute. Further requests are rejected with status 429."""
    concurrent_requests: Annotated[int | None, Field(ge=1, le=100_000)] = None
    """Maximum number of requests at a time. Further requests are rejected with status 429."""
    tokens_per_minute: Annotated[int | None, Field(ge=1, le=1_000_000_000)] = None
    """Maximum number of tokens per minute, of prompts and answers, without cached ones. Requests after it are rejected
    with status 429; running ones end as they would."""
    priority: Priority | None = None
    """With `order: FairShares`: requests go before those of lower priorities that came up to ten minutes earlier.
    Default: Normal."""
    share: Annotated[int | None, Field(ge=1, le=1000)] = None
    """With `order: FairShares`: the client's share of the pods beside those of others. Default: 1."""


def _once(limits: list[ApiKeyLimit]) -> list[ApiKeyLimit]:
    each_once([limit.name for limit in limits])
    return limits


class ApiKeys(ApiModel):
    """API keys of clients, which send them as `Authorization: Bearer KEY`."""

    secret_name: ObjectName
    """Secret in the namespace of the PDInference. Each of its keys is the name of a client; the value has one API key
    of at least 16 characters per line. Changes apply within about a minute, without a restart."""
    limits: Annotated[
        list[ApiKeyLimit],
        Field(
            max_length=100, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        ),
        AfterValidator(_once),
    ] = Field(default_factory=list)
    """Limits of clients."""
    order: Literal["Arrival", "FairShares"] = "Arrival"
    """Order in which vLLM takes waiting requests: as they came, or by shares and priorities of clients."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.order == 'FairShares' || !has(self.limits) || "
            "self.limits.all(limit, !has(limit.priority) && !has(limit.share))",
            holds=lambda keys: (
                keys.order == "FairShares"
                or all(limit.priority is None and limit.share is None for limit in keys.limits)
            ),
            field="order",
            message="The fields priority and share need order: FairShares. Set it, or remove them from limits.",
        ),
    )

    @property
    def shares_fairly(self) -> bool:
        """Whether vLLM takes requests in the order that the router gives them."""
        return self.order == "FairShares"


class RouterTLS(ApiModel):
    """TLS of the router's port for clients."""

    secret_name: ObjectName
    """Secret of type kubernetes.io/tls in the namespace of the PDInference. A renewed certificate is used without a
    restart."""


class Client(ApiModel):
    """Pods or addresses that may connect to the router."""

    namespace: NamespaceName | None = None
    """Namespace of the pods. Default: the namespace of the PDInference."""
    pod_labels: Annotated[dict[QualifiedName, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Labels of the pods. Default: all pods of the namespace."""
    cidr: Cidr | None = None
    """Addresses outside the cluster, as 192.0.2.0/24. Nodes and pods with `hostNetwork` count as such."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.cidr) || !(has(self.__namespace__) || has(self.podLabels))",
            holds=lambda c: c.cidr is None or not (c.namespace or c.pod_labels),
            field="cidr",
            message="Use either cidr, or namespace and podLabels.",
        ),
    )


class RouterService(ApiModel):
    """The Service in front of the router, named as the PDInference."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """Port for clients. Default: 80, or 443 with router.tls."""
    annotations: Annotated[dict[QualifiedName, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Annotations on the Service, for example of a load balancer."""


class Router(ApiModel):
    """The router sends each request to a P pod and then to a D pod."""

    image: ImageReference | None = None
    """Image with the `pdinference` program. Default: the operator's setting. The chart value `policy.routerImages` must
    allow others."""
    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """Router pods."""
    policy: RouterPolicy = "cache_aware"
    """How the router selects pods. cache_aware: P by outstanding prompt tokens and what it has of the prompt in its
    cache, D by running requests. least_loaded: the same without the cache. consistent_hash: by the header X-Session-Id.
    power_of_two: the less loaded of two random pods."""
    when_no_prefill: WhenNoPrefill = "Serve"
    """What happens to requests while no P pod can compute prompts. Serve: D computes them. Wait: they wait for a P pod.
    Fail: they fail with status 503."""
    disaggregation: Disaggregation = "Always"
    """The way of requests. Always: P and D. Adaptive: for each P and D, D alone or P alone, as it costs least."""
    migration: bool = False
    """Whether a stream that loses its D pod continues at another one. Streams with several answers, logprobs,
    structured output or tools end with an error event."""
    api_keys: ApiKeys | None = None
    """API keys of clients. Default: none: everyone who can connect may send requests."""
    tls: RouterTLS | None = None
    """TLS for clients. Default: HTTP."""
    clients: Annotated[list[Client] | None, Field(max_length=32)] = None
    """Who may connect to the router (a NetworkPolicy), besides the PDBatches of the namespace. An empty list: nobody.
    Default: pods of the same namespace, of the namespaces in the chart value `router.clientNamespaces`, and of those of
    `route.parentRefs`; for a Service of type NodePort or LoadBalancer, everyone."""
    placement: Placement = Field(default_factory=Placement)
    """Where router pods may run."""
    resources: Resources = Field(default_factory=Resources)
    """CPU and memory of the router container. Default: requests of 250m and 256Mi, so that it does not starve beside
    busy vLLM pods."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """Overlay, merged into the router's pods (strategic merge): `metadata` and `spec` of a pod."""
    service: RouterService = Field(default_factory=RouterService)
    """The Service that clients use."""
    route: Route | None = None
    """HTTPRoute from a Gateway to the Service. Default: none."""

    @property
    def is_adaptive(self) -> bool:
        """Whether D also computes prompts by choice, and P also answers."""
        return self.disaggregation == "Adaptive"

    @property
    def port(self) -> int:
        """Port of the Service."""
        return self.service.port or self._default_port

    @property
    def admits_every_address(self) -> bool:
        """Whether `clients` lists all IPv4 or all IPv6 addresses, possibly in parts."""
        networks = [ipaddress.ip_network(client.cidr) for client in self.clients or () if client.cidr is not None]
        v4 = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
        v6 = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
        widest = [
            *(network.prefixlen for network in ipaddress.collapse_addresses(v4)),
            *(network.prefixlen for network in ipaddress.collapse_addresses(v6)),
        ]
        return 0 in widest

    def url(self, namespace: str, name: str) -> str:
        """Base URL for clients inside the cluster.

        Args:
            namespace: Namespace of the PDInference.
            name: Its name.
        """
        host = f"{'https' if self.tls else 'http'}://{router_service(name)}.{namespace}.svc"
        return host if self.port == self._default_port else f"{host}:{self.port}"

    @property
    def _default_port(self) -> int:
        return _HTTPS_PORT if self.tls else _HTTP_PORT
