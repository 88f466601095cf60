"""Settings of the operator's installation.

Tests: tests/manifests/test_render.py, tests/manifests/test_sources.py
"""

from dataclasses import dataclass, field

from pdinference.api import names
from pdinference.api.installation_policy import Policy


@dataclass(frozen=True)
class KedaSettings:
    """Prometheus settings of KEDA triggers.

    Attributes:
        prometheus: URL of Prometheus.
        authentication: Kind and name of a TriggerAuthentication or ClusterTriggerAuthentication; None without one.
        auth_modes: Authentication modes (bearer, basic, ...), without which KEDA ignores its secrets; empty with a pod
            identity.
    """

    prometheus: str
    authentication: tuple[str, str] | None = None
    auth_modes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RenderSettings:
    """Settings of the operator's installation.

    Attributes:
        router_image: Router image of resources without `spec.router.image`.
        model_image: Image that downloads, checks and inspects models.
        runner_image: Image of batch runners: the operator image.
        operator_namespace: Namespace of the operator's pods; empty if it does not run in a pod.
        operator_labels: Labels that select these pods.
        prometheus_namespace: Namespace whose pods may read the metrics of vLLM and router pods; empty for none.
        client_namespaces: Namespaces whose pods may connect to routers without `spec.router.clients`.
        keda: Settings of KEDA; None if KEDA is not enabled.
        otlp_endpoint: URL of an OpenTelemetry collector for the spans of routers; empty for none.
        batch_config_maps: Whether the operator may create ConfigMaps for the output of PDBatches.
        policy: The installation policy.
    """

    router_image: str = names.DEFAULT_ROUTER_IMAGE
    model_image: str = names.DEFAULT_MODEL_IMAGE
    runner_image: str = names.DEFAULT_OPERATOR_IMAGE
    operator_namespace: str = ""
    operator_labels: tuple[tuple[str, str], ...] = ()
    prometheus_namespace: str = ""
    client_namespaces: tuple[str, ...] = ()
    keda: KedaSettings | None = None
    otlp_endpoint: str = ""
    batch_config_maps: bool = False
    policy: Policy = field(default_factory=Policy)
