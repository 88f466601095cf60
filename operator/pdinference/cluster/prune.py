"""Deletion of children that are no longer desired."""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Protocol

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, ChildKey
from pdinference.cluster.outcome import Outcome


class Prunable(Protocol):
    """Identity of an object to delete."""

    @property
    def key(self) -> ChildKey: ...  # noqa: D102
    @property
    def uid(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> int: ...  # noqa: D102
    @property
    def deleting(self) -> bool: ...  # noqa: D102


async def prune(api: ApiServer, children: Iterable[Prunable]) -> Outcome:
    """Delete children, each only if its uid and resource version are still those in the cache.

    A record stays in the cache until the watch reports the deletion, so that a P/D set that is draining stays visible.
    """
    outcome = Outcome()
    doomed = [child for child in children if not child.deleting]
    await asyncio.gather(*(_delete(api, child, outcome) for child in doomed))
    return outcome


async def _delete(api: ApiServer, child: Prunable, outcome: Outcome) -> None:
    path = CHILD_BY_NAME[child.key.kind].path(child.key.namespace, child.key.name)
    try:
        await api.delete(path, uid=child.uid, resource_version=str(child.version) if child.version else "")
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return
        if error.status == HTTPStatus.CONFLICT:  # the cache is stale; the next watch event starts a new reconcile
            outcome.waiting.append(child.key)
            return
        outcome.failed(child.key, error)
        return
    outcome.applied.append(child.key)
