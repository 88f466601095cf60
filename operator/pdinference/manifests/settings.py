"""What the operator was installed with."""

from dataclasses import dataclass, field

from pdinference.api import names
from pdinference.api.installation_policy import Policy


@dataclass(frozen=True)
class KedaSettings:
    """How ScaledObjects of KEDA reach Prometheus.

    Attributes:
        prometheus: Its URL.
        authentication: Kind and name of a TriggerAuthentication or ClusterTriggerAuthentication; None without.
        auth_modes: What KEDA is to do with the secrets of that (bearer, basic, ...), which it else leaves unused; empty
            with a pod identity.
    """

    prometheus: str
    authentication: tuple[str, str] | None = None
    auth_modes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RenderSettings:
    """What the operator was installed with.

    Attributes:
        router_image: Router image for resources that name none.
        model_image: Image that downloads, checks and inspects models.
        runner_image: Image of batch runners: the operator's own.
        operator_namespace: Where the operator's own pods are; empty when it does not run in a pod.
        operator_labels: What selects these pods.
        prometheus_namespace: Namespace whose pods may read the metrics of vLLM pods; empty for none.
        keda: How to use KEDA; None where it is not installed.
        batch_config_maps: Whether the operator has the right to create ConfigMaps for the answers of PDBatches.
        policy: What resources may ask for.
    """

    router_image: str = names.DEFAULT_ROUTER_IMAGE
    model_image: str = names.DEFAULT_MODEL_IMAGE
    runner_image: str = names.DEFAULT_OPERATOR_IMAGE
    operator_namespace: str = ""
    operator_labels: tuple[tuple[str, str], ...] = ()
    prometheus_namespace: str = ""
    keda: KedaSettings | None = None
    batch_config_maps: bool = False
    policy: Policy = field(default_factory=Policy)
