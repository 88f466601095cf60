"""What the checks know of a cluster.

Tests: tests/integration/test_doctor.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.status import Status
from pdinference.cli.listing import EMPTY, ObjectListing
from pdinference.cluster.client import Json
from pdinference.memory import RolePlan
from pdinference.planning.condition_changes import ROLE_WORDS


@dataclass(frozen=True)
class ClusterFacts:
    """A snapshot of the cluster, as far as the user may read it.

    Attributes:
        version: Version of Kubernetes, such as `v1.34.1`.
        groups: API groups with their versions.
        kinds: Plural names of the kinds in the operator's API group.
        dropped_fields: Fields of these that the API server drops; None if that is not known.
        operators: The operator's Deployments.
        webhooks: ValidatingWebhookConfigurations.
        policies: NetworkPolicies of the namespace.
    """

    version: str = ""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    dropped_fields: tuple[str, ...] | None = ()
    operators: ObjectListing = EMPTY
    webhooks: ObjectListing = EMPTY
    nodes: ObjectListing = EMPTY
    device_classes: ObjectListing = EMPTY
    slices: ObjectListing = EMPTY
    policies: ObjectListing = EMPTY

    def serves(self, group: str, version: str) -> bool:
        """Whether the API server serves a version of a group."""
        return version in self.groups.get(group, ())


@dataclass(frozen=True)
class Subject:
    """The resource that is checked.

    Attributes:
        templates: Pod templates of its workloads.
        claims: `spec.devices` of the device claims of their pods.
        plan: Memory plan of D; None while the model is unknown.
        status: The stored status; None for a manifest.
        generation: Generation of the stored spec.
    """

    resource: PDInference
    templates: Mapping[Role, Json]
    claims: Mapping[Role, Json]
    plan: RolePlan | None = None
    status: Status | None = None
    generation: int = 0

    @property
    def namespace(self) -> str:
        """Namespace of the resource."""
        return self.resource.metadata.namespace

    @property
    def names_of_roles(self) -> Mapping[Role, str]:
        """How findings call the pods of a workload."""
        if self.resource.spec.host_local is not None:
            return dict.fromkeys(self.templates, "P and D")
        return {role: ROLE_WORDS[role] for role in self.templates}
