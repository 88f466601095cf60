"""Writes of replica counts and of the status of scale targets, which are not part of server-side apply.

Tests: tests/inference/test_scaling.py, tests/inference/test_sleep.py
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, ChildKey
from pdinference.cluster.outcome import Outcome


class _Part(NamedTuple):
    path: str
    patch: Mapping[str, Any]


class ReplicaWriter:
    """Writes replica counts as merge patches, each only if the uid of the object still matches.

    Args:
        concurrency: Maximum number of concurrent requests, over all resources.
    """

    def __init__(self, api: ApiServer, cache: Cache, *, concurrency: int = 32) -> None:
        self._api = api
        self._cache = cache
        self._slots = asyncio.Semaphore(concurrency)

    async def set_replicas(self, replicas: Mapping[ChildKey, int], owner_uid: str) -> Outcome:
        """Set `spec.replicas` of workloads and scale targets.

        Args:
            replicas: Replica count by object.
            owner_uid: The uid of the resource that owns the objects.
        """
        return await self._all({key: _Part("", {"spec": {"replicas": n}}) for key, n in replicas.items()}, owner_uid)

    async def report(self, statuses: Mapping[ChildKey, Mapping[str, Any]], owner_uid: str) -> Outcome:
        """Write the status of scale targets."""
        return await self._all({key: _Part("/status", {"status": one}) for key, one in statuses.items()}, owner_uid)

    async def _all(self, parts: Mapping[ChildKey, _Part], owner_uid: str) -> Outcome:
        outcome = Outcome()
        await asyncio.gather(*(self._write(key, part, owner_uid, outcome) for key, part in parts.items()))
        return outcome

    async def _write(self, key: ChildKey, part: _Part, owner_uid: str, outcome: Outcome) -> None:
        record = self._cache.children.get(key)
        if record is None or record.owner_uid != owner_uid:
            outcome.waiting.append(key)
            return
        path = CHILD_BY_NAME[key.kind].path(key.namespace, key.name) + part.path
        try:
            async with self._slots:
                live = await self._api.merge(path, {"metadata": {"uid": record.uid}, **part.patch})
        except ApiError as error:
            if error.gone_or_changed:
                outcome.waiting.append(key)
            else:
                outcome.failed(key, error)
            return
        self._cache.written(key.kind, live)
        outcome.applied.append(key)
