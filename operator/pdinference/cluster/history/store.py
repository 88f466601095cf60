"""The history of a resource's valid specs: a bounded number of ControllerRevisions, the newest with the highest number.

All decisions depend on the cache only. If the operator is killed between two writes, the next reconcile completes them.

Tests: tests/cluster/test_history.py, tests/inference/test_last_valid_spec.py
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from pdinference.api import names
from pdinference.cluster.apply import Parent, is_ours
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import METADATA_ONLY, ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.entry import HistoryRecord, entry_manifest, entry_name, spec_of
from pdinference.cluster.kinds import CONTROLLER_REVISION, ChildKey, Owner
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.prune import prune
from pdinference.cluster.state.records import ResourceRecord, compact

Json = dict[str, Any]

LIMIT: Final = 10
"""Maximum number of entries of a resource, as for Deployments and StatefulSets."""


class History:
    """Stores and reads the valid specs of resources."""

    def __init__(self, api: ApiServer, cache: Cache) -> None:
        self._api = api
        self._cache = cache
        self._read: dict[Owner, tuple[str, bytes | None]] = {}
        """The last valid spec of each resource whose stored spec is not in effect, with the uid of its entry."""

    def is_due(self, resource: ResourceRecord) -> bool:
        """Whether `remember` would write. Without I/O."""
        entries = self._entries(resource)
        return not _is_newest(entries, resource) or any(superfluous(entries))

    def is_unproven(self, resource: ResourceRecord) -> bool:
        """Whether no entry says that requests went to the stored spec. Without I/O."""
        entries = self._entries(resource)
        return not (_is_newest(entries, resource) and entries[0].served)

    def is_newest(self, resource: ResourceRecord) -> bool:
        """Whether the newest entry has the stored spec."""
        return _is_newest(self._entries(resource), resource)

    async def remember(self, resource: ResourceRecord, *, served: bool = False) -> tuple[Outcome, Outcome]:
        """Make the stored spec of a resource the newest entry. Returns the outcomes of writes and of deletions.

        If an entry with this spec exists, its number is raised. Entries beyond the limit are deleted. Entries that
        differ from a newer one only in the replica count of D are deleted, too, so that scaling does not displace
        edits.

        Args:
            resource: The resource.
            served: Whether requests go to the stored spec. The entry keeps that for `undo`.
        """
        written = Outcome()
        entries = self._entries(resource)
        if not _is_newest(entries, resource):
            await self._make_newest(resource, entries, written)
        if written.settled and served:
            await self._mark_served(resource, written)
        if not written.settled:
            return written, Outcome()
        pruned = await prune(self._api, superfluous(self._entries(resource)))
        for key in pruned.applied:
            self._cache.forget_entry(key)
        return written, pruned

    async def last_valid(self, resource: ResourceRecord) -> ResourceRecord | None:
        """A resource whose stored spec is not in effect, with the last valid spec in its place; None if there is none.

        The result is also None if the newest entry has the stored spec: it was valid for another version of the
        operator, and no user asked for an older spec. The same holds for an entry with invalid content. The entry is
        read once, because its data is immutable.

        Raises:
            ApiError: The entry could not be read.
        """
        entries = self._entries(resource)
        if not entries or _is_newest(entries, resource):
            return None
        newest = entries[0]
        known = self._read.get(resource.owner)
        if known is None or known[0] != newest.uid:
            spec = spec_of(await self._api.get(_path(newest.key)), resource.uid)
            known = newest.uid, None if spec is None else compact(spec)
            self._read[resource.owner] = known
        if known[1] is None:
            return None
        found = self._cache.last_valid[resource.owner] = replace(resource, spec=known[1], unreadable="")
        return found

    def forget(self, owner: Owner) -> None:
        """Drop the last valid spec of a resource, because its stored spec is in effect or the resource is deleted."""
        self._read.pop(owner, None)
        self._cache.last_valid.pop(owner, None)

    def _entries(self, resource: ResourceRecord) -> list[HistoryRecord]:
        """The entries of the resource with this uid, newest first."""
        owned = self._cache.history.owned_by(resource.owner)
        own = (entry for entry in owned if entry.owner_uid == resource.uid and not entry.deleting)
        return sorted(own, key=lambda entry: (entry.number, entry.key.name), reverse=True)

    async def _make_newest(self, resource: ResourceRecord, entries: Sequence[HistoryRecord], written: Outcome) -> None:
        number = entries[0].number + 1 if entries else 1
        name = entry_name(resource)
        key = ChildKey(CONTROLLER_REVISION.name, resource.owner.namespace, name)
        known = next((entry for entry in entries if entry.key == key), None)
        manifest = entry_manifest(resource, number)
        body: Json | None
        try:
            if known is not None:
                body = await self._raise(manifest, known.uid, str(known.version))
            else:
                body = await self._create(key, manifest, resource, written)
        except ApiError as error:
            written.failed(key, error)
            return
        if body is not None:
            self._cache.entry_written(body)
            written.applied.append(key)

    async def _mark_served(self, resource: ResourceRecord, written: Outcome) -> None:
        entries = self._entries(resource)
        if not _is_newest(entries, resource) or entries[0].served:
            return
        entry = entries[0]
        metadata = {"uid": entry.uid, "annotations": {names.ANNOTATION_SERVED: "true"}}
        try:
            body = await self._api.merge(_path(entry.key), {"metadata": metadata}, manager=names.SERVED_MANAGER)
        except ApiError as error:
            written.failed(entry.key, error)
            return
        self._cache.entry_written(body)
        written.applied.append(entry.key)

    async def _create(self, key: ChildKey, manifest: Json, resource: ResourceRecord, written: Outcome) -> Json | None:
        """Create an entry unless the name is taken. An entry without labels is not watched, but is still adopted."""
        try:
            return await self._api.create_from_yaml(CONTROLLER_REVISION.path(key.namespace), manifest)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        found = await self._api.get(_path(key), accept=METADATA_ONLY)
        if not is_ours(found, key, Parent(resource.owner, resource.uid), written):
            return None
        return await self._raise(manifest, found["metadata"]["uid"], found["metadata"]["resourceVersion"])

    async def _raise(self, manifest: Json, uid: str, version: str) -> Json:
        """Give an entry the highest number. Its data is immutable and is not sent."""
        metadata = {"uid": uid, "resourceVersion": version, "labels": manifest["metadata"]["labels"]}
        path = CONTROLLER_REVISION.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        return await self._api.merge(path, {"metadata": metadata, "revision": manifest["revision"]})


def superfluous(entries: Sequence[HistoryRecord]) -> Iterator[HistoryRecord]:
    """The entries to delete, from the entries of a resource, newest first."""
    shapes: set[str] = set()
    for entry in entries:
        if len(shapes) >= LIMIT or entry.shape in shapes:
            yield entry
        shapes.add(entry.shape)


def _is_newest(entries: Sequence[HistoryRecord], resource: ResourceRecord) -> bool:
    """Whether the newest entry has the stored spec."""
    return bool(entries) and entries[0].key.name == entry_name(resource)


def _path(key: ChildKey) -> str:
    return CONTROLLER_REVISION.path(key.namespace, key.name)
