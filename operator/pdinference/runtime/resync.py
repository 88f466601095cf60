"""Lists all objects: before the first reconcile, at intervals, and after watches restart."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus

from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import Kind, Owner
from pdinference.cluster.listing import list_all
from pdinference.controller.metrics import Metrics

_LOG = logging.getLogger(__name__)
_FIRST_RETRY_S = 1.0
_RETRY_LIMIT_S = 15.0
_SETTLE_S = 2.0


class Resync:
    """Keeps the cache complete.

    Kopf lists before its first watch, and after a watch expired. It then reports existing objects, but not those
    deleted since the operator's own last list. So each watch that begins with a list requests a complete list here.
    That list is made after the watch has begun, so it lacks every object that the watch did not report as deleted.

    Args:
        enqueue: Queues resources for a reconcile.
    """

    def __init__(
        self,
        api: ApiServer,
        cache: Cache,
        metrics: Metrics,
        *,
        namespaces: Collection[str],
        kinds: Collection[Kind],
        interval: float,
        enqueue: Callable[[Iterable[Owner]], None],
    ) -> None:
        self._api = api
        self._cache = cache
        self._metrics = metrics
        self._namespaces = namespaces
        self._kinds = kinds
        self._interval = interval
        self._enqueue = enqueue
        self._requested = asyncio.Event()
        self.synced = False

    def request(self) -> None:
        """Request a list soon, because a watch began with one."""
        self._requested.set()

    async def first(self) -> None:
        """List until it succeeds once."""
        await self._list_at_last()
        self.synced = True

    async def forever(self) -> None:
        """List at intervals, with jitter, and on request."""
        while True:
            try:
                async with asyncio.timeout(self._interval * random.uniform(0.9, 1.1)):  # noqa: S311 - no secret
                    await self._requested.wait()
                await asyncio.sleep(_SETTLE_S)  # all watches begin together, at first and when the API server restarts
            except TimeoutError:
                pass
            self._requested.clear()
            await self._list_at_last()

    async def _list_at_last(self) -> None:
        delay = _FIRST_RETRY_S
        while not await self._list():
            await asyncio.sleep(delay)
            delay = min(_RETRY_LIMIT_S, delay * 2)

    async def _list(self) -> bool:
        drifted: set[Owner] = set()
        complete = await self._correct(drifted)
        if self.synced and drifted:
            self._metrics.resync_drift.inc(len(drifted))
            _LOG.info("A list corrected the cached objects of %d resources", len(drifted))
        everything = (record.owner for _, record in self._cache.resources.items()) if complete else ()
        self._enqueue({*drifted, *everything})
        return complete

    async def _correct(self, drifted: set[Owner]) -> bool:
        """Add the owners of all corrected objects, including those that were listed before a failure."""
        try:
            async for owners in list_all(self._api, self._cache, self._namespaces, self._kinds):
                drifted |= owners
        except ApiError as error:
            self._metrics.resyncs.labels("error").inc()
            _LOG.warning("Listing all objects failed and is retried: %s%s", error, _hint(error))
            return False
        self._metrics.resyncs.labels("success").inc()
        return True


def _hint(error: ApiError) -> str:
    missing = error.status == HTTPStatus.NOT_FOUND
    return " (check that the CRDs of this operator's version are installed)" if missing else ""
