"""Result of writing a set of children.

Tests: tests/cluster/test_apply.py, tests/cluster/test_prerequisites.py
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import (
    CHILD_BY_NAME,
    HTTP_ROUTE,
    RESOURCE_CLAIM_TEMPLATE,
    SCALED_OBJECT,
    ChildKey,
    Owner,
)
from pdinference.planning.observed import Failure

_NOT_SERVED = "NotServed"
_WHAT_FOR = {
    RESOURCE_CLAIM_TEMPLATE.name: "spec.{parameter,decode}.accelerator.devices needs (dynamic resource "
    "allocation, Kubernetes 1.34 or later). Remove devices and request an extended resource (resourceName), or upgrade "
    "the cluster.",
    HTTP_ROUTE.name: "spec.router.route needs (Gateway API). Install its CRDs and a Gateway controller, or remove "
    "spec.router.route.",
    SCALED_OBJECT.name: "spec.autoscaling.source KEDA needs. The number of pods stays as it is. Install KEDA, or set "
    "another spec.autoscaling.source.",
}
_NEWER_FIELDS = (
    "This cluster is too old for the field: spec.model.source.image and the tolerance of an autoscaling.behavior need "
    "Kubernetes 1.35. Remove the field, or upgrade the cluster."
)


@dataclass
class Outcome:
    """Result of writing a set of children.

    Attributes:
        applied: Children that were written.
        failures: Children that were not written, with the reason.
        waiting: Children that can be written after another object is deleted.
        retry_after: Longest Retry-After of the server in seconds.
    """

    applied: list[ChildKey] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    waiting: list[ChildKey] = field(default_factory=list)
    retry_after: float | None = None

    def failed(self, key: ChildKey, error: ApiError) -> None:
        """Record an error of the API server."""
        reason, message = error.reason, error.message
        if error.undeclared:
            reason, message = _NOT_SERVED, f"{message}. {_NEWER_FIELDS}"
        self.failures.append(Failure(key.kind, key.name, reason, message, transient=error.transient))
        if error.retry_after is not None:
            self.retry_after = max(error.retry_after, self.retry_after or 0.0)

    @property
    def settled(self) -> bool:
        """Whether nothing failed and nothing is waiting."""
        return not (self.failures or self.waiting)

    def add(self, other: "Outcome") -> None:
        """Add another outcome to this one."""
        self.applied += other.applied
        self.failures += other.failures
        self.waiting += other.waiting
        if other.retry_after is not None:
            self.retry_after = max(other.retry_after, self.retry_after or 0.0)

    @property
    def lacks_support(self) -> bool:
        """Whether the cluster does not serve a required kind, or a field of one."""
        return any(failure.reason == _NOT_SERVED for failure in self.failures)

    def pending(self, keys: Iterable[ChildKey]) -> frozenset[ChildKey]:
        """The children among `keys` that failed or are waiting."""
        failed = {(failure.kind, failure.name) for failure in self.failures}
        return frozenset(key for key in keys if key in self.waiting or (key.kind, key.name) in failed)

    def withhold(self, key: ChildKey, pending: Iterable[ChildKey]) -> None:
        """Record a child that is not applied because its prerequisites are pending. Their failures name it."""
        self.waiting.append(key)
        causes = {(cause.kind, cause.name) for cause in pending}
        self.failures = [
            replace(failure, withheld=(*failure.withheld, f"{key.kind} {key.name}"))
            if (failure.kind, failure.name) in causes
            else failure
            for failure in self.failures
        ]

    def not_served(self, key: ChildKey) -> None:
        """Record that the cluster does not serve this kind."""
        message = f"this cluster does not serve {CHILD_BY_NAME[key.kind].api_version}, which {_WHAT_FOR[key.kind]}"
        self.failures.append(Failure(key.kind, key.name, _NOT_SERVED, message))

    def refused(self, key: ChildKey, owner: Owner, *, passing: bool) -> None:
        """Record that an object of another owner has the name of a child.

        Args:
            key: Key of the object.
            owner: The resource whose child needs the name.
            passing: Whether the object will be deleted without user action: it is already being deleted, or garbage
                collection deletes it with an earlier resource of the same name.
        """
        if passing:
            self.waiting.append(key)
            return
        message = (
            f"a {key.kind} of this name exists already and does not belong to this {owner.kind}, so it is left alone. "
            f"Delete it (`kubectl delete -n {key.namespace} {key.kind.lower()} {key.name}`), or give the "
            f"{owner.kind} another name."
        )
        self.failures.append(Failure(key.kind, key.name, "NameConflict", message))
