"""The kinds that the operator reads and writes, and where the API server keeps them."""

from dataclasses import dataclass
from typing import NamedTuple

from pdinference.api import names


@dataclass(frozen=True, slots=True)
class Kind:
    """A namespaced kind.

    Attributes:
        group: API group; empty for the core group.
        selector: Label selector of the objects that concern the operator; empty for all.
        optional: Whether there are clusters, among those that the operator works on, whose API server lacks it.
    """

    name: str
    group: str
    version: str
    plural: str
    selector: str = names.MANAGED_SELECTOR
    optional: bool = False

    @property
    def api_version(self) -> str:
        """As in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str = "") -> str:
        """URL path of one object, of a namespace's objects, or (namespace None) of all objects in the cluster."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        parts += ["namespaces", namespace] if namespace is not None else []
        parts += [self.plural, name] if name else [self.plural]
        return "/".join(parts)


RESOURCE = Kind(names.KIND, names.GROUP, names.VERSION, names.PLURAL, selector="")
BATCH = Kind(names.BATCH_KIND, names.GROUP, names.VERSION, names.BATCH_PLURAL, selector="")
RESOURCES = (RESOURCE, BATCH)
"""The kinds that users write."""

JOB = Kind("Job", "batch", "v1", "jobs")
POD = Kind("Pod", "", "v1", "pods")
SERVICE_ACCOUNT = Kind("ServiceAccount", "", "v1", "serviceaccounts")
ROLE_BINDING = Kind("RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings")
STATEFUL_SET = Kind("StatefulSet", "apps", "v1", "statefulsets")
DEPLOYMENT = Kind("Deployment", "apps", "v1", "deployments")
CONTROLLER_REVISION = Kind("ControllerRevision", "apps", "v1", "controllerrevisions", selector=names.HISTORY_SELECTOR)
"""Holds a valid spec of a PDInference."""
RESOURCE_CLAIM_TEMPLATE = Kind(
    "ResourceClaimTemplate", "resource.k8s.io", "v1", "resourceclaimtemplates", optional=True
)
CONFIG_MAP = Kind("ConfigMap", "", "v1", "configmaps")
"""Holds the answers of a PDBatch that asks for that. Neither listed nor watched: the operator could then read all."""
AUTOSCALER = Kind("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers")

SCALER = Kind(names.SCALER_KIND, names.GROUP, names.VERSION, names.SCALER_PLURAL)
"""What HPAs and ScaledObjects scale. Child of a PDInference, one for each autoscaled role."""

SCALED_OBJECT = Kind("ScaledObject", "keda.sh", "v1alpha1", "scaledobjects", optional=True)
"""Of KEDA. The operator has a right to it only where it is installed to use KEDA."""

CHILDREN = (
    SERVICE_ACCOUNT,
    Kind("Role", "rbac.authorization.k8s.io", "v1", "roles"),
    ROLE_BINDING,
    Kind("Service", "", "v1", "services"),
    Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"),
    Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
    RESOURCE_CLAIM_TEMPLATE,
    STATEFUL_SET,
    DEPLOYMENT,
    JOB,
    SCALER,
    AUTOSCALER,
)
"""What a PDInference or a PDBatch becomes anywhere, apart from pods."""

OWNED = (*CHILDREN, CONTROLLER_REVISION)
"""All that the operator writes for a PDInference or a PDBatch anywhere: what is rendered, and the history."""

WORKLOADS = frozenset({STATEFUL_SET.name, DEPLOYMENT.name, JOB.name})
"""Kinds that start pods; they are applied after everything that the pods need."""

CHILD_BY_NAME = {kind.name: kind for kind in (*OWNED, SCALED_OBJECT)}
RESOURCE_BY_NAME = {kind.name: kind for kind in RESOURCES}
WATCHED = (*RESOURCES, *OWNED, POD)


def watched(*, keda: bool) -> tuple[Kind, ...]:
    """All kinds to list and watch.

    Args:
        keda: Whether the operator is installed to use KEDA.
    """
    return (*WATCHED, SCALED_OBJECT) if keda else WATCHED


class Owner(NamedTuple):
    """Key of a PDInference or a PDBatch: of the work queue, and of everything that belongs to it."""

    namespace: str
    name: str
    kind: str = names.KIND

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ChildKey(NamedTuple):
    """Where an object is."""

    kind: str
    namespace: str
    name: str
