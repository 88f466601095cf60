"""`spec.transfer`: how the KV cache moves from P to D.

Tests: tests/api/test_host_local.py, tests/api/test_validation.py
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdinference.api.names import Role
from pdinference.api.v1alpha1.base import ApiModel, ExtendedResource, Matches, ObjectName, Rule
from pdinference.api.v1alpha1.connectors import LIMITS, ConnectorName

NetworkDevice = Annotated[
    str,
    Field(max_length=64),
    Matches("^[A-Za-z0-9][A-Za-z0-9_.-]*(:[0-9]+)?$", "Write an RDMA device with its port, for example mlx5_0:1."),
]
MOST_INSTANCES = 8
"""Most instances of a role in one pod."""
VerificationMode = Literal["Required", "Warn", "Off"]
TransferPath = Literal["Auto", "HostLocal", "Network"]
_BY_NVLINK = [name for name, limits in LIMITS.items() if limits.nvlink]


def host_local_cel(transfer: str) -> str:
    """CEL expression for `Transfer.is_host_local`.

    Args:
        transfer: CEL expression of `spec.transfer`.
    """
    return (
        f"({transfer}.path == 'HostLocal' || ({transfer}.path == 'Auto' && has({transfer}.hostLocal) "
        f"&& !has({transfer}.rdma)))"
    )


class RDMA(ApiModel):
    """KV transfer over RDMA instead of TCP. Nodes must not limit locked memory (docs/nodes.md)."""

    resource_name: ExtendedResource
    """Extended resource of the RDMA devices, for example `rdma/ib`."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of RDMA devices that each pod requests."""
    net_devices: Annotated[list[NetworkDevice], Field(max_length=32)] = Field(default_factory=list)
    """RDMA devices to use, for example ["mlx5_0:1"] (UCX_NET_DEVICES). Default: the devices nearest to the GPU, as UCX
    finds them."""


class MooncakeSettings(ApiModel):
    """Settings of the Mooncake connector."""

    protocol: Literal["rdma", "tcp"] = "rdma"
    """Transport of the KV cache. rdma needs transfer.rdma."""


class LMCacheSettings(ApiModel):
    """Settings of the LMCache connector."""

    remote_url: Annotated[
        str,
        Field(max_length=512),
        Matches(
            r"^(lm|redis|valkey|mooncakestore|infinistore)://[A-Za-z0-9.-]+:[0-9]{1,5}/?$",
            "Write the scheme, host and port of an LMCache server or Redis: lm://lmcache.cache.svc:65432.",
        ),
    ]
    """URL of your cache server, to which P writes the KV cache and from which D reads it. Every client that can connect
    to the server can read the cache."""


class SharedStorageSettings(ApiModel):
    """Settings of the SharedStorage connector."""

    claim_name: ObjectName
    """PersistentVolumeClaim that the pods of both roles write to. Files are deleted 15 minutes after their last
    use."""


class HostLocal(ApiModel):
    """The engines of one pod with the path HostLocal."""

    parameter: Annotated[int, Field(ge=1, le=MOST_INSTANCES)] = 1
    """Number of P instances in a pod."""
    decode: Annotated[int, Field(ge=1, le=MOST_INSTANCES)] = 1
    """Number of D instances in a pod."""

    def of(self, role: Role) -> int:
        """Number of instances of a role in a pod."""
        return self.parameter if role is Role.PARAMETER else self.decode


class Transfer(ApiModel):
    """How the KV cache moves from P to D."""

    connector: ConnectorName = "Nixl"
    """vLLM's KV connector. Nixl: D pods pull KV blocks from P pods; with pipeline stages, P pods push them. Mooncake: P
    pods push KV blocks. LMCache: blocks go through a cache server. SharedStorage: blocks go through files on a volume.
    Tested on a GPU: Nixl, and Mooncake over TCP. For LMCache only the options were tested."""
    path: TransferPath = "Auto"
    """Where KV cache moves. HostLocal: P and D share pods, so that GPUs exchange it over NVLink; decode.replicas counts
    pods. Network: each instance has its own pod. Auto: HostLocal if hostLocal is set and rdma is not, else Network."""
    host_local: HostLocal | None = None
    """Instances of each role in one pod with the path HostLocal. Default: one of each."""
    on_failure: Literal["Recompute", "Fail"] = "Recompute"
    """What D does if the KV cache of a request does not arrive. Recompute: D prefills the prompt itself, which delays
    the answer. Fail: the request fails."""
    verification: VerificationMode = "Required"
    """Whether the KV transfer of a new revision is tried first: the router compares answers of P and D with those of P
    alone. Required: a revision gets requests only after its answers were
    right and D had the KV cache from P. Warn: the result is only reported. Off: nothing is tried."""
    repair: Literal["Restart", "Off"] = "Restart"
    """What happens with a pod whose KV transfer is proven broken or whose engine is stuck. Restart: it is evicted, but
    never the last D that answers. Off: the status alone says it."""
    rdma: RDMA | None = None
    """RDMA devices for P and D pods. Default: none; the KV cache moves over the pod network or within a node."""
    mooncake: MooncakeSettings = Field(default_factory=MooncakeSettings)
    """Settings of the Mooncake connector."""
    lm_cache: LMCacheSettings | None = None
    """Settings of the LMCache connector."""
    shared_storage: SharedStorageSettings | None = None
    """Settings of the SharedStorage connector."""

    @property
    def is_host_local(self) -> bool:
        """Whether the path is HostLocal."""
        return self.path == "HostLocal" or (self.path == "Auto" and self.host_local is not None and self.rdma is None)

    @property
    def path_reason(self) -> str:
        """Why the path is what it is, for the status."""
        if self.path != "Auto":
            return f"path is {self.path}"
        if self.rdma is not None:
            return "path is Auto, and rdma is set"
        return f"path is Auto, and hostLocal is {'not set' if self.host_local is None else 'set'}"

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.connector in {_BY_NVLINK} || !{host_local_cel('self')}",
            holds=lambda t: LIMITS[t.connector].nvlink or not t.is_host_local,
            field="connector",
            message=f"The path HostLocal needs a connector that uses NVLink: {', '.join(_BY_NVLINK)}.",
        ),
        Rule(
            cel="self.path != 'HostLocal' || !has(self.rdma)",
            holds=lambda t: t.path != "HostLocal" or t.rdma is None,
            field="rdma",
            message="With the path HostLocal, KV cache stays in the pod. Remove rdma, or use the path Network.",
        ),
        Rule(
            cel="(self.connector == 'LMCache') == has(self.lmCache)",
            holds=lambda t: (t.connector == "LMCache") == (t.lm_cache is not None),
            field="lmCache",
            message="Set lmCache if, and only if, connector is LMCache; remoteUrl is the address of its server.",
        ),
        Rule(
            cel="(self.connector == 'SharedStorage') == has(self.sharedStorage)",
            holds=lambda t: (t.connector == "SharedStorage") == (t.shared_storage is not None),
            field="sharedStorage",
            message="Set sharedStorage if, and only if, connector is SharedStorage; claimName names its volume.",
        ),
    )
