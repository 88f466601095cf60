"""The kinds that the operator reads and writes, with their URL paths.

Tests: tests/charts/test_rights.py, tests/cluster/test_listing.py
"""

from dataclasses import dataclass
from typing import NamedTuple

from pdinference.api import names


@dataclass(frozen=True, slots=True)
class Kind:
    """A namespaced kind.

    Attributes:
        group: API group; empty for the core group.
        selector: Label selector of the relevant objects; empty for all.
        optional: Whether a supported cluster may not serve it.
    """

    name: str
    group: str
    version: str
    plural: str
    selector: str = names.MANAGED_SELECTOR
    optional: bool = False

    @property
    def api_version(self) -> str:
        """The apiVersion of a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str = "") -> str:
        """URL path of one object, of all objects in a namespace, or (namespace None) of all objects in the cluster."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        parts += ["namespaces", namespace] if namespace is not None else []
        parts += [self.plural, name] if name else [self.plural]
        return "/".join(parts)


RESOURCE = Kind(names.KIND, names.GROUP, names.VERSION, names.PLURAL, selector="")
BATCH = Kind(names.BATCH_KIND, names.GROUP, names.VERSION, names.BATCH_PLURAL, selector="")
RESOURCES = (RESOURCE, BATCH)
"""The kinds that users create."""

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
CONFIG_MAP = Kind("ConfigMap", "", "v1", "configmaps", selector=f"{names.MANAGED_SELECTOR},{names.LABEL_NAME}")
"""Programs of ours for P and D pods. The selector leaves out the output of PDBatches, which grows with each answer."""
AUTOSCALER = Kind("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers")

SCALER = Kind(names.SCALER_KIND, names.GROUP, names.VERSION, names.SCALER_PLURAL)
"""Scale target of HPAs and ScaledObjects. Child of a PDInference, one for each autoscaled role."""

SCALED_OBJECT = Kind("ScaledObject", "keda.sh", "v1alpha1", "scaledobjects", optional=True)
"""A kind of KEDA. The operator has access only if it is installed with KEDA support."""

HTTP_ROUTE = Kind("HTTPRoute", names.GATEWAY_GROUP, "v1", "httproutes", optional=True)
"""A kind of the Gateway API. Its CRDs may be installed while the operator runs."""

SERVICE = Kind("Service", "", "v1", "services")
NETWORK_POLICY = Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies")
DISRUPTION_BUDGET = Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets")

CHILDREN = (
    SERVICE_ACCOUNT,
    Kind("Role", "rbac.authorization.k8s.io", "v1", "roles"),
    ROLE_BINDING,
    SERVICE,
    NETWORK_POLICY,
    DISRUPTION_BUDGET,
    RESOURCE_CLAIM_TEMPLATE,
    CONFIG_MAP,
    STATEFUL_SET,
    DEPLOYMENT,
    JOB,
    HTTP_ROUTE,
    SCALER,
    AUTOSCALER,
)
"""Kinds of the rendered children of a PDInference or a PDBatch, without pods."""

OWNED = (*CHILDREN, CONTROLLER_REVISION)
"""All kinds that the operator writes for a PDInference or a PDBatch: rendered children, and the history."""

WORKLOADS = frozenset({STATEFUL_SET.name, DEPLOYMENT.name, JOB.name})
"""Kinds that start pods. They are applied after the objects that the pods need."""

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
    """Key of a PDInference or a PDBatch, in the work queue and for its children."""

    namespace: str
    name: str
    kind: str = names.KIND

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ChildKey(NamedTuple):
    """Key of an object."""

    kind: str
    namespace: str
    name: str
