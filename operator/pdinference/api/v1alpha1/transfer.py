"""`spec.transfer`: how the KV cache moves from P to D."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdinference.api.v1alpha1.base import ApiModel, Matches, QualifiedName, Rule

NetworkDevice = Annotated[
    str,
    Field(max_length=64),
    Matches("^[A-Za-z0-9][A-Za-z0-9_.-]*(:[0-9]+)?$", "Write an RDMA device and its port, for example mlx5_0:1."),
]


class RDMA(ApiModel):
    """KV transfer by RDMA instead of TCP.

    Pods get the capability IPC_LOCK for it, which the baseline and restricted Pod Security Standards forbid.
    """

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


class Transfer(ApiModel):
    """How the KV cache moves from P to D."""

    connector: Literal["Nixl"] = "Nixl"
    """Nixl: each D pod pulls KV blocks directly from the P pod that computed them."""
    rdma: RDMA | None = None
    """RDMA devices for P and D pods. Default: none, so that KV cache moves over the pod network or within a node."""
