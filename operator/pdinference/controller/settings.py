"""How an operator process runs; `pdinference run` fills this in from its flags."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pdinference.manifests import RenderSettings


class OperatorSettings(BaseModel):
    """Settings of one operator process."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, use_attribute_docstrings=True, extra="forbid")

    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; none means the whole cluster."""
    kubeconfig: Path | None = None
    """Kubeconfig to log in with. Default: the pod's service account, else $KUBECONFIG, else ~/.kube/config."""
    leader_elect: bool = True
    """Work only while holding the Lease. Off is for a single process on a developer's machine."""
    lease_namespace: str = "default"
    """Where the Lease is: the operator's own namespace."""
    workers: Annotated[int, Field(ge=1)] = 8
    """Resources that are reconciled at a time."""
    applies: Annotated[int, Field(ge=1)] = 32
    """Requests for children under way at a time, over all resources."""
    resync_seconds: Annotated[float, Field(gt=0)] = 600
    """How often everything is listed, which cures whatever a watch missed."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of /healthz, /readyz and /metrics; 0 takes a free one and logs it."""
    bind_address: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from outside the pod
    """Address of that port."""
    shutdown_seconds: Annotated[float, Field(ge=0)] = 15
    """How long reconciles under way may take to finish when the process is told to stop."""
    render: RenderSettings = RenderSettings()
    """What the children are rendered with."""
    log_format: Literal["json", "plain"] = "json"
    """Structured logs for a collector, or plain ones for a person."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""
