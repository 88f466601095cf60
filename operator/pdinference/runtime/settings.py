"""Settings of an operator process, which `pdinference run` reads from its flags.

Tests: tests/runtime/test_tls_endpoint.py, tests/loadmetrics/test_signals.py
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pdinference.api import names
from pdinference.manifests import RenderSettings


class TLSSettings(BaseModel):
    """The HTTPS endpoint for the API server; it is on if `secret` or `folder` is set."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="forbid")

    port: Annotated[int, Field(ge=0, le=65535)] = names.OPERATOR_TLS_PORT
    """Port; 0 selects a free one, which is logged."""
    hosts: tuple[str, ...] = ()
    """Names and addresses in the self-managed certificate, under which the API server calls."""
    secret: str = ""
    """Secret in the operator's own namespace that holds the self-managed CA and certificate."""
    folder: Path | None = None
    """Folder with tls.crt and tls.key that another component renews, instead of a Secret."""
    webhook: str = ""
    """Name of the webhook configurations that get the CA bundle."""
    client_certificate: bool = False
    """Whether the webhook requires a client certificate."""
    client_ca: Path | None = None
    """File with the CAs of that certificate. None: the CAs that the API server publishes for its front proxy."""
    client_names: tuple[str, ...] = ()
    """Allowed common names. Empty: any, or those that the API server publishes for its front proxy."""
    check_seconds: Annotated[float, Field(gt=0)] = 15
    """Interval of checks of certificate and CA bundle."""
    drain_seconds: Annotated[float, Field(ge=0)] = 5
    """How long calls are still served after the signal to stop, until the endpoint is removed everywhere."""

    @property
    def enabled(self) -> bool:
        """Whether the endpoint is on."""
        return bool(self.secret or self.folder)


class OperatorSettings(BaseModel):
    """Settings of one operator process."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, use_attribute_docstrings=True, extra="forbid")

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; none means the whole cluster."""
    kubeconfig: Path | None = None
    """Kubeconfig to log in with. Default: the pod's service account, else $KUBECONFIG, else ~/.kube/config."""
    leader_elect: bool = True
    """Reconcile only while holding the Lease. Off is for a single process on a developer's machine."""
    lease_namespace: str = "default"
    """Namespace of the Lease: the operator's own."""
    workers: Annotated[int, Field(ge=1)] = 8
    """Resources that are reconciled concurrently."""
    applies: Annotated[int, Field(ge=1)] = 32
    """Concurrent requests for children, over all resources."""
    resync_seconds: Annotated[float, Field(gt=0)] = 600
    """Interval of complete lists, which correct what watches missed."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of /healthz, /readyz and /metrics; 0 selects a free one, which is logged."""
    bind_address: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from outside the pod
    """Address of that port."""
    tls: TLSSettings = TLSSettings()
    """The HTTPS endpoint."""
    metrics_service: tuple[str, str] | None = None
    """Namespace and name of the operator's Service through which the API server requests external metrics. None: the
    metrics API is off."""
    scrape_seconds: Annotated[float, Field(gt=0)] = 5
    """Interval of scrapes of autoscaled vLLM pods."""
    shutdown_seconds: Annotated[float, Field(ge=0)] = 15
    """How long reconciles in progress may take to finish after the signal to stop."""
    prices: Mapping[str, Annotated[float, Field(ge=0, le=1e6)]] = Field(default_factory=dict)
    """Price of an hour of each GPU product, in any currency."""
    render: RenderSettings = RenderSettings()
    """Settings of the manifests."""
    log_format: Literal["json", "plain"] = "json"
    """JSON for log collectors, or plain text."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity that is logged."""
