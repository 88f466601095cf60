"""The workers: they take keys from the queue, reconcile them, and queue failed ones again."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from pdinference.cluster.kinds import Owner
from pdinference.controller.metrics import Metrics
from pdinference.controller.queue import WorkQueue
from pdinference.controller.results import Result
from pdinference.controller.supervisor import Supervisor

_LOG = logging.getLogger(__name__)


class ResourceReconciler(Protocol):
    """Reconciles resources of one or more kinds."""

    async def reconcile(self, owner: Owner) -> Result: ...  # noqa: D102


class KindDispatcher:
    """One reconciler for each kind of resource."""

    def __init__(self, reconcilers: Mapping[str, ResourceReconciler]) -> None:
        self._reconcilers = reconcilers

    async def reconcile(self, owner: Owner) -> Result:
        """Call the reconciler of the resource's kind."""
        return await self._reconcilers[owner.kind].reconcile(owner)


class Workers:
    """A fixed number of workers on one queue.

    Args:
        may_write: Called before each reconcile; False in a suspended process whose Lease has expired.
    """

    def __init__(
        self,
        queue: WorkQueue[Owner],
        reconciler: ResourceReconciler,
        metrics: Metrics,
        supervisor: Supervisor,
        *,
        may_write: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._supervisor = supervisor
        self._reconciler = reconciler
        self._metrics = metrics
        self._may_write = may_write
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, count: int) -> None:
        """Start this number of workers."""
        self._tasks = {
            self._supervisor.start(f"worker-{number}", self._work(), may_return=True) for number in range(count)
        }

    async def stop(self, seconds: float) -> None:
        """Take no more keys, wait at most `seconds` for work in progress, then cancel it."""
        self._queue.close()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _work(self) -> None:
        while (owner := await self._queue.get()) is not None:
            try:
                await self._one(owner)
            finally:
                self._queue.done(owner)

    async def _one(self, owner: Owner) -> None:
        if not self._may_write():
            self._queue.retry(owner)
            return
        with self._metrics.reconcile_seconds.time():
            result = await self._guarded(owner)
        if result is None:
            self._metrics.reconciles.labels("error").inc()
            self._queue.retry(owner)
        elif result.retry:
            self._metrics.reconciles.labels("retry").inc()
            self._queue.retry(owner, result.retry_after)
        else:
            self._metrics.reconciles.labels("success").inc()
            self._queue.forget(owner)
            if result.requeue_after is not None:
                self._queue.add_after(owner, result.requeue_after)

    async def _guarded(self, owner: Owner) -> Result | None:
        """Reconcile; None after an unexpected exception, which must not end the worker."""
        try:
            return await self._reconciler.reconcile(owner)
        except Exception:  # noqa: BLE001 - logged, counted and tried again
            _LOG.exception("Reconcile failed", extra={"namespace": owner.namespace, "resource": owner.name})
            self._metrics.errors.labels("Internal").inc()
            return None
