"""`spec.transfer`: how the KV cache moves from P to D."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Matches, ObjectName, QualifiedName, Rule
from pdinference.api.v1alpha1.connectors import ConnectorName

NetworkDevice = Annotated[
    str,
    Field(max_length=64),
    Matches("^[A-Za-z0-9][A-Za-z0-9_.-]*(:[0-9]+)?$", "Write an RDMA device and its port, for example mlx5_0:1."),
]


class RDMA(ApiModel):
    """KV transfer by RDMA instead of TCP. Nodes must not limit locked memory (docs/operations.md)."""

    resource_name: QualifiedName
    """Extended resource that brings the RDMA devices into the pods, for example `rdma/ib`."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of it each pod requests."""
    net_devices: Annotated[list[NetworkDevice], Field(max_length=32)] = Field(default_factory=list)
    """RDMA devices to use, for example ["mlx5_0:1"] (UCX_NET_DEVICES). Default: those that UCX finds nearest."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.resourceName.contains('/')",
            holds=lambda r: "/" in r.resource_name,
            field="resourceName",
            message="An extended resource has a domain, for example rdma/ib.",
        ),
    )


class Mooncake(ApiModel):
    """Settings of the connector Mooncake."""

    protocol: Literal["rdma", "tcp"] = "rdma"
    """What the KV cache moves over; rdma needs the devices of transfer.rdma."""


class LMCache(ApiModel):
    """Settings of the connector LMCache."""

    remote_url: Annotated[
        str,
        Field(max_length=512),
        Matches(
            r"^(lm|redis|valkey|mooncakestore|infinistore)://[A-Za-z0-9.-]+:[0-9]{1,5}/?$",
            "Write scheme, host and port of an LMCache server or Redis, for example lm://lmcache.cache.svc:65432.",
        ),
    ]
    """Where P puts the KV cache and D gets it: a server that you run, reachable from the pods. Whoever reaches it reads
    the cache."""


class SharedStorage(ApiModel):
    """Settings of the connector SharedStorage."""

    claim_name: ObjectName
    """PersistentVolumeClaim that the pods of both roles mount and write to. Files go 15 minutes after last use."""


class Transfer(ApiModel):
    """How the KV cache moves from P to D."""

    connector: ConnectorName = "Nixl"
    """Nixl: each D pod pulls KV blocks directly from the P pod that computed them; pipeline stages push them. Mooncake:
    P pods push them. LMCache: they go through a cache server. SharedStorage: they go through files on a volume.
    Proven on a GPU: Nixl, and Mooncake over TCP. Of LMCache only the options were checked."""
    on_failure: Literal["Recompute", "Fail"] = "Recompute"
    """What D does with a request whose KV cache does not arrive. Recompute: computes the prompt itself, so that the
    answer comes late. Fail: refuses the request, so that the fault shows."""
    rdma: RDMA | None = None
    """RDMA devices for P and D pods. Default: none, so that KV cache moves over the pod network or within a node."""
    mooncake: Mooncake = Field(default_factory=Mooncake)
    """Settings of the connector Mooncake."""
    lm_cache: LMCache | None = None
    """Settings of the connector LMCache."""
    shared_storage: SharedStorage | None = None
    """Settings of the connector SharedStorage."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.connector == 'LMCache') == has(self.lmCache)",
            holds=lambda t: (t.connector == "LMCache") == (t.lm_cache is not None),
            field="lmCache",
            message="Connector LMCache needs it, with the remoteUrl of its server; leave it out with any other.",
        ),
        Rule(
            cel="(self.connector == 'SharedStorage') == has(self.sharedStorage)",
            holds=lambda t: (t.connector == "SharedStorage") == (t.shared_storage is not None),
            field="sharedStorage",
            message="Connector SharedStorage needs it, with the claimName of a volume; leave it out with any other.",
        ),
    )
