"""What became of a set of children."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, RESOURCE_CLAIM_TEMPLATE, SCALED_OBJECT, ChildKey, Owner
from pdinference.planning.observed import Failure

_NOT_SERVED = "NotServed"
_WHAT_FOR = {
    RESOURCE_CLAIM_TEMPLATE.name: "spec.{parameter,decode}.accelerator.devices needs (dynamic resource "
    "allocation, Kubernetes 1.34 or later). Remove devices and request an extended resource (resourceName), or upgrade "
    "the cluster.",
    SCALED_OBJECT.name: "spec.autoscaling.source KEDA needs. The number of pods stays as it is. Install KEDA, or set "
    "another spec.autoscaling.source.",
}


@dataclass
class Outcome:
    """What became of a set of children.

    Attributes:
        applied: What was written.
        failures: What was not, and why.
        waiting: What can be written once an object that is going away is gone.
        retry_after: Longest time that the server asked to wait.
    """

    applied: list[ChildKey] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    waiting: list[ChildKey] = field(default_factory=list)
    retry_after: float | None = None

    def failed(self, key: ChildKey, error: ApiError) -> None:
        """Note the API server's refusal."""
        self.failures.append(Failure(key.kind, key.name, error.reason, error.message, transient=error.transient))
        if error.retry_after is not None:
            self.retry_after = max(error.retry_after, self.retry_after or 0.0)

    @property
    def settled(self) -> bool:
        """Whether everything is as it should be."""
        return not (self.failures or self.waiting)

    def add(self, other: "Outcome") -> None:
        """Take in what became of others."""
        self.applied += other.applied
        self.failures += other.failures
        self.waiting += other.waiting
        if other.retry_after is not None:
            self.retry_after = max(other.retry_after, self.retry_after or 0.0)

    @property
    def lacks_kind(self) -> bool:
        """Whether the API server does not know a kind that is needed."""
        return any(failure.reason == _NOT_SERVED for failure in self.failures)

    def pending(self, keys: Iterable[ChildKey]) -> frozenset[ChildKey]:
        """Those of these children that failed or have to wait."""
        failed = {(failure.kind, failure.name) for failure in self.failures}
        return frozenset(key for key in keys if key in self.waiting or (key.kind, key.name) in failed)

    def withhold(self, key: ChildKey, pending: Iterable[ChildKey]) -> None:
        """Note a child that is not applied because of others that it needs; their failures name it."""
        self.waiting.append(key)
        causes = {(cause.kind, cause.name) for cause in pending}
        self.failures = [
            replace(failure, withheld=(*failure.withheld, f"{key.kind} {key.name}"))
            if (failure.kind, failure.name) in causes
            else failure
            for failure in self.failures
        ]

    def not_served(self, key: ChildKey) -> None:
        """Note that the API server does not know this kind."""
        message = f"this cluster does not serve {CHILD_BY_NAME[key.kind].api_version}, which {_WHAT_FOR[key.kind]}"
        self.failures.append(Failure(key.kind, key.name, _NOT_SERVED, message))

    def refused(self, key: ChildKey, owner: Owner, *, passing: bool) -> None:
        """Note an object in our place that is not ours.

        Args:
            key: Where it is.
            owner: Who wants the place.
            passing: It is being deleted, or belongs to an older resource of the same name, whose children garbage
                collection removes: waiting is enough. Otherwise it is a stranger's, and only a person can decide.
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
