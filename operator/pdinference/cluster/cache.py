"""Cache of live objects.

It is updated by watches, periodic lists, and the responses to the operator's own writes. A record never goes back to an
older resource version, so a late watch event cannot undo the response to an apply.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pdinference.cluster.history.entry import HistoryRecord, history_record
from pdinference.cluster.kinds import CONTROLLER_REVISION, POD, RESOURCES, ChildKey, Kind, Owner
from pdinference.cluster.objects import UNREADABLE_ERRORS
from pdinference.cluster.state.pods import pod_record
from pdinference.cluster.state.records import (
    ChildRecord,
    PodRecord,
    ResourceRecord,
    child_record,
    resource_record,
    version_of,
)
from pdinference.cluster.table import Key, Table, Versioned
from pdinference.planning.observed import PodSummary

Json = Mapping[str, Any]


Record = ResourceRecord | ChildRecord | PodRecord | HistoryRecord


def record_of(kind: Kind, body: Json) -> Record | None:
    """The record of an object; None for a pod that does not belong to a resource."""
    if kind in RESOURCES:
        return resource_record(kind.name, body)
    if kind == CONTROLLER_REVISION:
        return history_record(body)
    return pod_record(body) if kind == POD else child_record(kind.name, body)


class Cache:
    """All PDInferences and PDBatches, their children and their pods.

    Args:
        unreadable: Called with the kind of each object that cannot be parsed. Such objects are left out.
    """

    def __init__(self, unreadable: Callable[[Kind], None] = lambda _: None) -> None:
        self.unreadable = unreadable
        self.resources: Table[ResourceRecord] = Table()
        self.last_valid: dict[Owner, ResourceRecord] = {}
        """Resources whose stored spec is not in effect, with their last valid spec in its place (`History`)."""
        self.children: Table[ChildRecord] = Table(carry=_keep_settled)
        self.pods: Table[PodRecord] = Table()
        self.history: Table[HistoryRecord] = Table()

    def observe(self, kind: Kind, body: Json, *, deleted: bool) -> set[Owner]:
        """Process a watch event and return the owners to reconcile; empty if no relevant field has changed."""
        try:
            return self._observe(kind, body, deleted=deleted)
        except UNREADABLE_ERRORS:
            self.unreadable(kind)
            return set()

    def _observe(self, kind: Kind, body: Json, *, deleted: bool) -> set[Owner]:
        if not deleted and self._known(kind, body["metadata"]):
            return set()
        if kind in RESOURCES:
            return self._observe_resource(kind, body, deleted=deleted)
        if kind == POD:
            return self._observe_pod(body, deleted=deleted)
        if kind == CONTROLLER_REVISION:
            return self._observe_entry(body, deleted=deleted)
        return self._observe_child(kind, body, deleted=deleted)

    def kept(self, record: Record) -> Record:
        """The cached record of the same state, or else the new one. A complete list then takes no extra memory."""
        old: Record | None
        if isinstance(record, ResourceRecord):
            old = self.resources.get(record.owner)
        elif isinstance(record, PodRecord):
            old = self.pods.get((record.namespace, record.name))
        elif isinstance(record, HistoryRecord):
            old = self.history.get(record.key)
        else:
            old = self.children.get(record.key)
        same = old is not None and (old.uid, old.version) == (record.uid, record.version) and record.version > 0
        return old if old is not None and same else record

    def replace(self, kind: Kind, records: Iterable[Record], version: int, namespace: str | None) -> set[Owner]:
        """Replace the records by a complete list and return the owners of all records that differed."""
        if kind in RESOURCES:
            resources = ((record.owner, record) for record in records if isinstance(record, ResourceRecord))
            return self.resources.replace(
                resources, version, lambda key: key[2] == kind.name and namespace in {None, key[0]}
            )
        if kind == POD:
            pods = (((pod.namespace, pod.name), pod) for pod in records if isinstance(pod, PodRecord))
            return self.pods.replace(pods, version, lambda key: namespace in {None, key[0]})
        if kind == CONTROLLER_REVISION:
            entries = ((record.key, record) for record in records if isinstance(record, HistoryRecord))
            return self.history.replace(entries, version, lambda key: namespace in {None, key[1]})
        children = ((record.key, record) for record in records if isinstance(record, ChildRecord))
        return self.children.replace(children, version, lambda key: key[0] == kind.name and namespace in {None, key[1]})

    def applied(self, kind: str, body: Json) -> None:
        """Process the response to an apply: the live object, which is in order."""
        record = child_record(kind, body)
        record.settled, record.content = record.digest, None
        self.children.put(record.key, record)

    def written(self, kind: str, body: Json) -> None:
        """Process the response to a partial write of a child. The other fields are compared with the manifest later."""
        record = child_record(kind, body)
        self.children.put(record.key, record)

    def status_written(self, kind: str, body: Json) -> None:
        """Process the response to a status write.

        A response with other changes, such as an edit, is ignored. Otherwise the watch event of the edit would change
        nothing in the cache, and no reconcile would start.
        """
        record = resource_record(kind, body)
        known = self.resources.get(record.owner)
        if known is not None and _same_wish(known, record):
            self.resources.put(record.owner, record)

    def entry_written(self, body: Json) -> None:
        """Process the response to a write of a history entry."""
        record = history_record(body)
        self.history.put(record.key, record)

    def forget_entry(self, key: ChildKey) -> None:
        """Remove a deleted history entry. It has no finalizers to wait for."""
        if (record := self.history.get(key)) is not None:
            self.history.remove(key, record.uid, record.version)

    def children_of(self, owner: Owner) -> list[ChildRecord]:
        """All children whose owner reference names this resource, with any uid."""
        return self.children.owned_by(owner)

    def pods_of(self, owner: Owner) -> tuple[PodSummary, ...]:
        """The pods of a resource, in a stable order."""
        return tuple(sorted((pod.summary for pod in self.pods.owned_by(owner)), key=lambda pod: pod.name))

    def _known(self, kind: Kind, metadata: Json) -> bool:
        """Whether the cache already has this version, as after each write of the operator."""
        place = (metadata["namespace"], metadata["name"])
        record: Versioned | None
        if kind in RESOURCES:
            record = self.resources.get((*place, kind.name))
        elif kind == CONTROLLER_REVISION:
            record = self.history.get((kind.name, *place))
        else:
            record = self.pods.get(place) if kind == POD else self.children.get((kind.name, *place))
        version = version_of(metadata["resourceVersion"])
        return record is not None and record.uid == metadata["uid"] and record.version == version > 0

    def _observe_resource(self, kind: Kind, body: Json, *, deleted: bool) -> set[Owner]:
        record = resource_record(kind.name, body)
        if deleted:
            self.resources.remove(record.owner, record.uid, record.version)
            return {record.owner}
        old = self.resources.get(record.owner)
        if not self.resources.put(record.owner, record):
            return set()
        return set() if old is not None and _same_resource(old, record) else {record.owner}

    def _observe_child(self, kind: Kind, body: Json, *, deleted: bool) -> set[Owner]:
        record = child_record(kind.name, body)
        if deleted:
            return _owners(self.children.remove(record.key, record.uid, record.version))
        old = self.children.get(record.key)
        if not self.children.put(record.key, record):
            return set()
        return set() if old is not None and _same_child(old, record) else _owners(old, record)

    def _observe_entry(self, body: Json, *, deleted: bool) -> set[Owner]:
        record = history_record(body)
        if deleted:
            return _owners(self.history.remove(record.key, record.uid, record.version))
        old = self.history.get(record.key)
        return _owners(old, record) if self.history.put(record.key, record) else set()

    def _observe_pod(self, body: Json, *, deleted: bool) -> set[Owner]:
        metadata = body["metadata"]
        key: Key = (metadata["namespace"], metadata["name"])
        record = None if deleted else pod_record(body)
        if record is None:  # a workload may also have given it up
            return _owners(self.pods.remove(key, metadata["uid"], version_of(metadata["resourceVersion"])))
        old = self.pods.get(key)
        if not self.pods.put(key, record):
            return set()
        return set() if old is not None and old.uid == record.uid and old.summary == record.summary else _owners(record)


def _keep_settled(new: ChildRecord, old: ChildRecord) -> None:
    """Carry over the result of the last comparison while the digest stays the same, and drop the content.

    The response to an apply brings its own result.
    """
    new.settled = new.settled or old.settled
    if new.digest == new.settled:
        new.content = None


def _owners(*records: ChildRecord | PodRecord | HistoryRecord | None) -> set[Owner]:
    return {record.owner for record in records if record is not None and record.owner is not None}


def _same_resource(old: ResourceRecord, new: ResourceRecord) -> bool:
    return _same_wish(old, new) and old.status == new.status


def _same_wish(old: ResourceRecord, new: ResourceRecord) -> bool:
    return (old.uid, old.generation, old.deleting, old.paused) == (new.uid, new.generation, new.deleting, new.paused)


def _same_child(old: ChildRecord, new: ChildRecord) -> bool:
    return _what_matters(old) == _what_matters(new)


def _what_matters(child: ChildRecord) -> tuple[object, ...]:
    identity = (child.uid, child.digest, child.deleting, child.owner_uid)
    return (*identity, child.workload, child.autoscaler, child.scaler, child.job, child.route)
