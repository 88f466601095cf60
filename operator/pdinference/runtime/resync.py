"""Complete lists: once before any work, then now and then, and soon after watches began, at first or anew."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable

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
_NOT_FOUND = 404


class Resync:
    """Keeps the cache complete.

    Kopf lists before it watches, at first and after a watch expired, and then reports what exists, but not what was
    deleted since our own last list. So every watch that begins with a list asks for a complete list here, which does
    notice. It is made once the watch has begun: what was deleted before Kopf's list is missing here, and what is
    deleted after it is told.

    Args:
        enqueue: Takes the resources to look at again.
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
        self._asked = asyncio.Event()
        self.synced = False

    def ask(self) -> None:
        """A watch began with a list: list soon."""
        self._asked.set()

    async def first(self) -> None:
        """List until it succeeds once."""
        await self._list_at_last()
        self.synced = True

    async def forever(self) -> None:
        """List at intervals, with jitter, and when asked to."""
        while True:
            try:
                async with asyncio.timeout(self._interval * random.uniform(0.9, 1.1)):  # noqa: S311 - no secret
                    await self._asked.wait()
                await asyncio.sleep(_SETTLE_S)  # all watches begin together, at first and when the API server restarts
            except TimeoutError:
                pass
            self._asked.clear()
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
            _LOG.info("A list corrected %d resources that the watches had wrong", len(drifted))
        everything = (record.owner for _, record in self._cache.resources.items()) if complete else ()
        self._enqueue({*drifted, *everything})
        return complete

    async def _correct(self, drifted: set[Owner]) -> bool:
        """Add the owners of all that differed, by lists before one that failed too: the next try finds them no more."""
        try:
            async for owners in list_all(self._api, self._cache, self._namespaces, self._kinds):
                drifted |= owners
        except ApiError as error:
            self._metrics.resyncs.labels("error").inc()
            _LOG.warning("Listing all objects failed, will try again: %s%s", error, _hint(error))
            return False
        self._metrics.resyncs.labels("success").inc()
        return True


def _hint(error: ApiError) -> str:
    return " (are the CRDs installed, in this operator's version?)" if error.status == _NOT_FOUND else ""
