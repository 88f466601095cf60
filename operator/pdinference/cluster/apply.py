"""Server-side apply of the children: each one only when it is absent, changed, or was changed by somebody else."""

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from pdinference.api import names
from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.client import METADATA_ONLY, ApiServer
from pdinference.cluster.drift import contains
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, ROLE_BINDING, WORKLOADS, ChildKey, Owner
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.prerequisites import prerequisites
from pdinference.cluster.records import ChildRecord, controller_of
from pdinference.cluster.replicas import keep_count, set_count, starting
from pdinference.planning.scaling.replicas import WantedCount

Json = dict[str, Any]

_NOT_FOUND = 404
_FIRST, _BINDINGS, _WORKLOADS = range(3)


class Parent(NamedTuple):
    """The resource that children are applied for."""

    owner: Owner
    uid: str


class _Verdict(Enum):
    LEAVE = auto()
    ABSENT = auto()
    APPLY = auto()
    COUNT = auto()  # nothing but the number of pods


class Applier:
    """Brings children to what their manifests say.

    Args:
        concurrency: Requests under way at a time, over all resources.
    """

    def __init__(self, api: ApiServer, cache: Cache, *, concurrency: int = 32) -> None:
        self._api = api
        self._cache = cache
        self._slots = asyncio.Semaphore(concurrency)

    def in_order(
        self, fingerprints: Mapping[ChildKey, str], counts: Mapping[ChildKey, WantedCount], parent: Parent
    ) -> bool:
        """Whether every child is known to be as it should be, so that rendering and `apply` would do nothing."""
        records = ((self._cache.children.get(key), key, fingerprint) for key, fingerprint in fingerprints.items())
        return all(
            record is not None
            and record.owner_uid == parent.uid
            and not record.deleting
            and record.applied_hash == fingerprint
            and record.digest == record.settled
            and _has_count(record, counts.get(key))
            for record, key, fingerprint in records
        )

    async def apply(self, children: Iterable[Child], parent: Parent) -> Outcome:
        """Apply what needs it; a refused object stops only those that need it (`prerequisites`).

        Workloads come after what their pods need (service accounts above all), so that no pod is refused; and role
        bindings after roles, because the API server grants only what it can look up. Where a kind is missing, workloads
        do not come at all: such an API server drops fields of pods that it does not know, so that they would start
        without their devices.
        """
        outcome = Outcome()
        children = tuple(children)
        needs = _needs(children)
        for wave in (_FIRST, _BINDINGS, _WORKLOADS):
            if outcome.lacks_kind:
                break
            await self._apply_wave([child for child in children if _wave(child) == wave], needs, parent, outcome)
        return outcome

    async def _apply_wave(
        self,
        wave: Iterable[Child],
        needs: Mapping[ChildKey, Collection[ChildKey]],
        parent: Parent,
        outcome: Outcome,
    ) -> None:
        judged: list[tuple[Child, _Verdict]] = []
        for child in wave:
            if pending := outcome.pending(needs.get(child.key, ())):
                outcome.withhold(child.key, pending)
            elif (verdict := self._judge(child, parent, outcome)) is not _Verdict.LEAVE:
                judged.append((child, verdict))
        await asyncio.gather(*(self._bring(child, parent, outcome, verdict) for child, verdict in judged))

    async def recount(self, counts: Mapping[ChildKey, WantedCount]) -> Outcome:
        """Change nothing but the number of pods, of workloads whose manifests are no longer rendered."""
        outcome = Outcome()
        await asyncio.gather(*(self._recount(key, wanted.count, outcome) for key, wanted in counts.items()))
        return outcome

    async def _recount(self, key: ChildKey, count: int, outcome: Outcome) -> None:
        try:
            async with self._slots:
                live = await set_count(self._api, key, count)
        except ApiError as error:
            outcome.failed(key, error)
            return
        self._cache.applied(key.kind, live)
        outcome.applied.append(key)

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
        if record.digest != record.settled:
            if record.content is None or not contains(json.loads(record.content), _comparable(child.manifest)):
                return _Verdict.APPLY
            record.settled, record.content = record.digest, None
        return _Verdict.LEAVE if _has_count(record, child.pods) else _Verdict.COUNT

    async def _bring(self, child: Child, parent: Parent, outcome: Outcome, verdict: _Verdict) -> None:
        path = CHILD_BY_NAME[child.key.kind].path(child.key.namespace, child.key.name)
        try:
            async with self._slots:
                if verdict is _Verdict.ABSENT:
                    found = await self._look(path)
                    if found is not None and not is_ours(found, child.key, parent, outcome):
                        return
                    verdict = _Verdict.ABSENT if found is None else _Verdict.APPLY
                live = await self._write(path, child, verdict)
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

    async def _write(self, path: str, child: Child, verdict: _Verdict) -> Json:
        if child.pods is None:
            return await self._api.apply(path, child.marked(), manager=names.FIELD_MANAGER)
        if verdict is _Verdict.ABSENT:
            manifest = starting(child.marked(), child.pods.count)
            return await self._api.apply(path, manifest, manager=names.FIELD_MANAGER)
        if verdict is _Verdict.APPLY:
            await keep_count(self._api, child.key)
            live = await self._api.apply(path, child.marked(), manager=names.FIELD_MANAGER)
            if child.pods.met_by(live["spec"].get("replicas", 1)):
                return live
        return await set_count(self._api, child.key, child.pods.count)

    async def _look(self, path: str) -> Json | None:
        """Look before the first apply: apply would take over whatever has this name.

        The cache cannot tell, because it holds labelled objects only. An object of ours whose label was taken away is
        found here too, and gets it back.
        """
        try:
            return await self._api.get(path, accept=METADATA_ONLY)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise


def _wave(child: Child) -> int:
    if child.key.kind == ROLE_BINDING.name:
        return _BINDINGS
    return _WORKLOADS if child.key.kind in WORKLOADS else _FIRST


def _needs(children: Iterable[Child]) -> dict[ChildKey, Collection[ChildKey]]:
    """What each child needs to be in order before it is applied."""
    children = tuple(children)
    keys = frozenset(child.key for child in children)
    last = {child.key: keys - {child.key} for child in children if child.last}
    return {**prerequisites((child.key, child.manifest) for child in children), **last}


def is_ours(found: Json, key: ChildKey, parent: Parent, outcome: Outcome) -> bool:
    """Whether an object that the cache does not know may be applied; if not, that is noted."""
    owner, owner_uid = controller_of(found["metadata"])
    deleting = "deletionTimestamp" in found["metadata"]
    if owner_uid == parent.uid and not deleting:
        return True
    outcome.refused(key, parent.owner, passing=deleting or owner == parent.owner)
    return False


def _has_count(record: ChildRecord, wanted: WantedCount | None) -> bool:
    return wanted is None or record.workload is None or wanted.met_by(record.workload.desired)


def _comparable(manifest: Json) -> Json:
    return {key: value for key, value in manifest.items() if key not in {"apiVersion", "kind"}}
