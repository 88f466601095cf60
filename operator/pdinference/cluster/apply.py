"""Server-side apply of the children: each one only when it is absent, changed, or was changed by somebody else."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, NamedTuple, Self

from pdinference.api import names
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import METADATA_ONLY, ApiServer
from pdinference.cluster.drift import contains
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, ROLE_BINDING, WORKLOADS, ChildKey, Owner
from pdinference.cluster.records import controller_of
from pdinference.planning.observed import Failure

Json = dict[str, Any]

_NOT_FOUND = 404
_LATE = WORKLOADS | {ROLE_BINDING.name}
_NOT_SERVED = "NotServed"


class Parent(NamedTuple):
    """The resource that children are applied for."""

    owner: Owner
    uid: str


class _Verdict(Enum):
    LEAVE = auto()
    ABSENT = auto()
    APPLY = auto()


@dataclass(frozen=True, slots=True)
class Child:
    """A manifest with what identifies it."""

    key: ChildKey
    manifest: Json
    fingerprint: str

    @classmethod
    def of(cls, manifest: Json) -> Self:
        """From a rendered manifest."""
        return cls(child_key(manifest), manifest, applied_hash(manifest))

    def marked(self) -> Json:
        """The manifest with its own hash in an annotation."""
        metadata = self.manifest["metadata"]
        annotations = {**(metadata.get("annotations") or {}), names.ANNOTATION_APPLIED_HASH: self.fingerprint}
        return {**self.manifest, "metadata": {**metadata, "annotations": annotations}}


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
    def lacks_kind(self) -> bool:
        """Whether the API server does not know a kind that is needed."""
        return any(failure.reason == _NOT_SERVED for failure in self.failures)

    def not_served(self, key: ChildKey) -> None:
        """Note that the API server does not know this kind."""
        message = (
            f"this cluster does not serve {CHILD_BY_NAME[key.kind].api_version}, which spec.{{parameter,decode}}."
            "accelerator.devices needs (dynamic resource allocation, Kubernetes 1.34 or later). Remove devices and "
            "request an extended resource (resourceName), or upgrade the cluster."
        )
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


class Applier:
    """Brings children to what their manifests say.

    Args:
        concurrency: Requests under way at a time, over all resources.
    """

    def __init__(self, api: ApiServer, cache: Cache, *, concurrency: int = 32) -> None:
        self._api = api
        self._cache = cache
        self._slots = asyncio.Semaphore(concurrency)

    def in_order(self, fingerprints: Mapping[ChildKey, str], parent: Parent) -> bool:
        """Whether every child is known to be as it should be, so that rendering and `apply` would do nothing."""
        records = ((self._cache.children.get(key), fingerprint) for key, fingerprint in fingerprints.items())
        return all(
            record is not None
            and record.owner_uid == parent.uid
            and not record.deleting
            and record.applied_hash == fingerprint
            and record.digest == record.settled
            for record, fingerprint in records
        )

    async def apply(self, children: Iterable[Child], parent: Parent) -> Outcome:
        """Apply what needs it; a refused object does not stop the others.

        Workloads come after what their pods need (service accounts above all), so that no pod is refused; and role
        bindings after roles, because the API server grants only what it can look up. Where a kind is missing, workloads
        do not come at all: such an API server drops fields of pods that it does not know, so that they would start
        without their devices.
        """
        outcome = Outcome()
        children = tuple(children)
        for late in (False, True):
            if outcome.lacks_kind:
                break
            wave = [child for child in children if (child.key.kind in _LATE) is late]
            judged = [(child, self._judge(child, parent, outcome)) for child in wave]
            await asyncio.gather(
                *(
                    self._bring(child, parent, outcome, absent=verdict is _Verdict.ABSENT)
                    for child, verdict in judged
                    if verdict is not _Verdict.LEAVE
                )
            )
        return outcome

    def _judge(self, child: Child, parent: Parent, outcome: Outcome) -> _Verdict:
        """What the cache says about a child; without I/O, so that a reconcile with nothing to do costs little."""
        record = self._cache.children.get(child.key)
        if record is None:
            return _Verdict.ABSENT
        if record.owner_uid != parent.uid or record.deleting:
            outcome.refused(child.key, parent.owner, passing=record.deleting or record.owner == parent.owner)
            return _Verdict.LEAVE
        if record.applied_hash != child.fingerprint:
            return _Verdict.APPLY
        if record.digest == record.settled:
            return _Verdict.LEAVE
        if record.content is None or not contains(json.loads(record.content), _comparable(child.manifest)):
            return _Verdict.APPLY
        record.settled, record.content = record.digest, None
        return _Verdict.LEAVE

    async def _bring(self, child: Child, parent: Parent, outcome: Outcome, *, absent: bool) -> None:
        path = CHILD_BY_NAME[child.key.kind].path(child.key.namespace, child.key.name)
        try:
            async with self._slots:
                if absent and not await self._may_create(path, child.key, parent, outcome):
                    return
                live = await self._api.apply(path, child.marked(), manager=names.FIELD_MANAGER)
        except ApiError as error:
            if child.key.kind == ROLE_BINDING.name and error.status == _NOT_FOUND:
                # The API server looks up the role in a cache of its own, which may not have seen ours yet.
                outcome.waiting.append(child.key)
            elif CHILD_BY_NAME[child.key.kind].optional and error.status == _NOT_FOUND:
                outcome.not_served(child.key)
            else:
                outcome.failed(child.key, error)
            return
        self._cache.applied(child.key.kind, live)
        outcome.applied.append(child.key)

    async def _may_create(self, path: str, key: ChildKey, parent: Parent, outcome: Outcome) -> bool:
        """Look before the first apply: apply would take over whatever has this name.

        The cache cannot tell, because it holds labelled objects only. An object of ours whose label was taken away is
        found here too, and gets it back.
        """
        try:
            found = await self._api.get(path, accept=METADATA_ONLY)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return True
            raise
        owner, owner_uid = controller_of(found["metadata"])
        deleting = "deletionTimestamp" in found["metadata"]
        if owner_uid == parent.uid and not deleting:
            return True
        outcome.refused(key, parent.owner, passing=deleting or owner == parent.owner)
        return False


def applied_hash(manifest: Mapping[str, Any]) -> str:
    """Identity of a manifest."""
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
    return blake2b(text, digest_size=12).hexdigest()


def child_key(manifest: Mapping[str, Any]) -> ChildKey:
    """Where a manifest's object is."""
    return ChildKey(manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])


def _comparable(manifest: Json) -> Json:
    return {key: value for key, value in manifest.items() if key not in {"apiVersion", "kind"}}
