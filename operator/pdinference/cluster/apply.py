"""Server-side apply of children that are missing or out of date, or that another manager has changed."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from pdinference.api import names
from pdinference.cluster.cache import Cache
from pdinference.cluster.child import Child
from pdinference.cluster.client import METADATA_ONLY, ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import (
    AUTOSCALER,
    CHILD_BY_NAME,
    HTTP_ROUTE,
    JOB,
    ROLE_BINDING,
    SCALED_OBJECT,
    WORKLOADS,
    ChildKey,
    Owner,
)
from pdinference.cluster.outcome import Outcome
from pdinference.cluster.prerequisites import prerequisites
from pdinference.cluster.state.records import controller_of
from pdinference.cluster.verdict import Verdict, has_replicas, is_in_order, judge, judge_owner

Json = dict[str, Any]

_FIRST, _BINDINGS, _LAST = range(3)
_LATE = WORKLOADS | {AUTOSCALER.name, SCALED_OBJECT.name, HTTP_ROUTE.name}
"""Kinds that depend on others, and that no other kind depends on."""


class Parent(NamedTuple):
    """The resource that children are applied for."""

    owner: Owner
    uid: str


class Applier:
    """Applies the manifests of children.

    Args:
        concurrency: Maximum number of concurrent requests, over all resources.
        applied: Called with the kind of each object that was applied.
    """

    def __init__(
        self,
        api: ApiServer,
        cache: Cache,
        *,
        concurrency: int = 32,
        applied: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._cache = cache
        self._applied = applied
        self._slots = asyncio.Semaphore(concurrency)

    async def apply(self, children: Iterable[Child], parent: Parent) -> Outcome:
        """Apply the children that are not in order. A rejected child blocks only its dependents (`prerequisites`).

        Workloads are applied after the objects that their pods need, such as service accounts. Role bindings are
        applied after roles, because the API server looks up the role of a binding. If the cluster does not serve a
        kind, no workload is applied: the API server would drop unknown fields of pods, and the pods would start without
        their devices.
        """
        outcome = Outcome()
        children = tuple(children)
        needs = _needs(children)
        for wave in (_FIRST, _BINDINGS, _LAST):
            if outcome.lacks_support:
                break
            await self._apply_wave([child for child in children if wave_of(child.key) == wave], needs, parent, outcome)
        return outcome

    async def _apply_wave(
        self,
        wave: Iterable[Child],
        needs: Mapping[ChildKey, Collection[ChildKey]],
        parent: Parent,
        outcome: Outcome,
    ) -> None:
        judged: list[tuple[Child, Verdict]] = []
        for child in wave:
            if pending := outcome.pending(needs.get(child.key, ())):
                outcome.withhold(child.key, pending)
            elif (verdict := self._judge(child, parent, outcome)) is not Verdict.LEAVE:
                judged.append((child, verdict))
        await asyncio.gather(*(self._bring(child, parent, outcome, verdict) for child, verdict in judged))

    def _judge(self, child: Child, parent: Parent, outcome: Outcome) -> Verdict:
        """The verdict on a child from the cache. Without I/O, so that a reconcile without changes is cheap."""
        record = self._cache.children.get(child.key)
        verdict = judge(record, parent.owner, parent.uid, child.fingerprint, child.replicas)
        if verdict in {Verdict.WAIT, Verdict.FOREIGN}:
            outcome.refused(child.key, parent.owner, passing=verdict is Verdict.WAIT)
            return Verdict.LEAVE
        if record is None or verdict is not Verdict.VERIFY:
            return verdict
        if not is_in_order(record, child.manifest):
            return Verdict.APPLY
        record.settled, record.content = record.digest, None
        return Verdict.LEAVE if has_replicas(record, child.replicas) else Verdict.SCALE

    async def _bring(self, child: Child, parent: Parent, outcome: Outcome, verdict: Verdict) -> None:
        path = CHILD_BY_NAME[child.key.kind].path(child.key.namespace, child.key.name)
        try:
            async with self._slots:
                if verdict is Verdict.CREATE:
                    live = await self._create(child, path, parent, outcome)
                else:
                    live = await self._api.apply(path, child.marked(), manager=names.FIELD_MANAGER)
        except ApiError as error:
            if child.key.kind == ROLE_BINDING.name and error.status == HTTPStatus.NOT_FOUND:
                # The API server looks up the role in a cache of its own, which may not have seen ours yet.
                outcome.waiting.append(child.key)
            elif CHILD_BY_NAME[child.key.kind].optional and error.status == HTTPStatus.NOT_FOUND:
                outcome.not_served(child.key)
            else:
                outcome.failed(child.key, error)
            return
        if live is not None:
            self._cache.applied(child.key.kind, live)
            self._applied(child.key.kind)
            outcome.applied.append(child.key)

    async def _create(self, child: Child, path: str, parent: Parent, outcome: Outcome) -> Json | None:
        """Create a child that is not in the cache; None if an object of another owner has the name.

        A plain apply would take over any object of this name. The cache cannot detect such an object, because it holds
        labelled objects only. A child that has lost its label is found here, and the apply restores the label. A Job
        gets its labels alone: its pod template is immutable, and may be that of another version of the operator.
        """
        manifest = child.marked()
        try:
            return await self._api.apply_new(path, manifest, manager=names.FIELD_MANAGER)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        found = await self._api.get(path, accept=METADATA_ONLY)
        if not is_ours(found, child.key, parent, outcome):
            return None
        if child.key.kind == JOB.name:
            metadata = {"uid": found["metadata"]["uid"], "labels": manifest["metadata"]["labels"]}
            self._cache.written(JOB.name, await self._api.merge(path, {"metadata": metadata}))
            outcome.waiting.append(child.key)
            return None
        return await self._api.apply(path, manifest, manager=names.FIELD_MANAGER)


def wave_of(key: ChildKey) -> int:
    """The wave in which a child is applied: after all lower waves, and concurrently with its own wave."""
    if key.kind == ROLE_BINDING.name:
        return _BINDINGS
    return _LAST if key.kind in _LATE else _FIRST


def _needs(children: Iterable[Child]) -> dict[ChildKey, Collection[ChildKey]]:
    """The prerequisites of each child, which must be in order before it is applied."""
    children = tuple(children)
    keys = frozenset(child.key for child in children)
    last = {child.key: keys - {child.key} for child in children if child.last}
    return {**prerequisites((child.key, child.manifest) for child in children), **last}


def is_ours(found: Json, key: ChildKey, parent: Parent, outcome: Outcome) -> bool:
    """Whether an object that is not in the cache may be applied; if not, the outcome records the reason."""
    owner, owner_uid = controller_of(found["metadata"])
    deleting = "deletionTimestamp" in found["metadata"]
    taken = judge_owner(owner, owner_uid, deleting=deleting, owner=parent.owner, uid=parent.uid)
    if taken is not None:
        outcome.refused(key, parent.owner, passing=taken is Verdict.WAIT)
    return taken is None
