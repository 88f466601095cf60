"""How an operator process runs; `pdinference run` fills this in from its flags."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pdinference.api import names
from pdinference.manifests import RenderSettings


class TLSSettings(BaseModel):
    """The HTTPS server for what the API server calls; it serves when there is a Secret or a folder."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="forbid")

    port: Annotated[int, Field(ge=0, le=65535)] = names.OPERATOR_TLS_PORT
    """Port; 0 takes a free one and logs it."""
    hosts: tuple[str, ...] = ()
    """Names and addresses under which the API server calls, for the self-managed certificate."""
    secret: str = ""
    """Secret in the operator's own namespace that holds the self-managed CA and certificate."""
    folder: Path | None = None
    """Folder with tls.crt and tls.key that somebody else renews, instead of a Secret."""
    webhook: str = ""
    """Name of the webhook configurations that get the CA bundle."""
    client_certificate: bool = False
    """Whether the webhook answers only callers with a client certificate."""
    client_ca: Path | None = None
    """File with the CAs of that certificate. None: what the API server publishes of its front proxy."""
    client_names: tuple[str, ...] = ()
    """Common names that it may have. Empty: any, or those that the API server publishes of its front proxy."""
    check_seconds: Annotated[float, Field(gt=0)] = 15
    """How often certificate and CA bundle are looked at."""
    drain_seconds: Annotated[float, Field(ge=0)] = 5
    """How long calls are still answered when the process is told to stop, while the news of it travels."""

    @property
    def enabled(self) -> bool:
        """Whether to serve at all."""
        return bool(self.secret or self.folder)


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
    tls: TLSSettings = TLSSettings()
    """What the API server calls."""
    metrics_service: tuple[str, str] | None = None
    """Namespace and name of the Service in front of this operator through which the API server asks for external
    metrics. None: it serves none."""
    scrape_seconds: Annotated[float, Field(gt=0)] = 5
    """How often the metrics of autoscaled vLLM pods are read."""
    shutdown_seconds: Annotated[float, Field(ge=0)] = 15
    """How long reconciles under way may take to finish when the process is told to stop."""
    render: RenderSettings = RenderSettings()
    """What the children are rendered with."""
    log_format: Literal["json", "plain"] = "json"
    """Structured logs for a collector, or plain ones for a person."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""
