"""The operator process, from start to stop."""

import asyncio
import logging
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from pdinference.admission import admission_routes
from pdinference.api import names
from pdinference.cluster.apply import Applier
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer, ConfigurationError, load_configuration
from pdinference.cluster.kinds import RESOURCES, Kind, Owner, watched
from pdinference.controller import logs
from pdinference.controller.answering import Answering
from pdinference.controller.batches import BatchReconciler
from pdinference.controller.events import EventRecorder
from pdinference.controller.freshness import Freshness
from pdinference.controller.health import Health
from pdinference.controller.leader import Leader, LeaderLostError
from pdinference.controller.measuring import Measuring
from pdinference.controller.metrics import Metrics
from pdinference.controller.queue import WorkQueue
from pdinference.controller.reconcile import Reconciler
from pdinference.controller.report import Reporter
from pdinference.controller.resync import Resync
from pdinference.controller.settings import OperatorSettings
from pdinference.controller.watch import watch
from pdinference.controller.workers import ByKind, Workers

_LOG = logging.getLogger(__name__)
_COALESCE_S = 0.1
_KOPF_EXIT_S = 5.0


def run(settings: OperatorSettings) -> int:
    """Run the operator until SIGTERM or SIGINT; the exit status comes back."""
    logs.configure(settings)
    try:
        return asyncio.run(_main(settings))
    except ConfigurationError as error:
        _LOG.error("%s", error)
        return 2


async def _main(settings: OperatorSettings) -> int:
    stop = asyncio.Event()
    _stop_on_signals(stop)
    api = ApiServer(await load_configuration(settings.kubeconfig), kubeconfig=settings.kubeconfig)
    try:
        return await Operator(settings, api, stop).run()
    finally:
        await api.close()


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


class Operator:
    """All parts of the process, wired together.

    Args:
        stop: Set it to stop the operator in an orderly way.
    """

    def __init__(self, settings: OperatorSettings, api: ApiServer, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._api = api
        self._metrics = Metrics()
        self._cache = Cache()
        self._queue: WorkQueue[Owner] = WorkQueue(self._metrics)
        identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._kinds = watched(keda=settings.render.keda is not None)
        self._resync = Resync(
            api,
            self._cache,
            self._metrics,
            namespaces=settings.namespaces,
            kinds=self._kinds,
            interval=settings.resync_seconds,
            enqueue=self._enqueue,
        )
        self._freshness = Freshness(on_listed=self._resync.ask)
        self._leader = Leader(
            api,
            namespace=settings.lease_namespace,
            identity=identity,
            on_change=lambda leads: self._metrics.is_leader.set(int(leads)),
        )
        self._answering = Answering(settings, api, admission_routes(settings.render, self._metrics.registry))
        self._measuring = Measuring(
            settings, api, self._cache, self._answering, registry=self._metrics.registry, enqueue=self._enqueue
        )
        events = EventRecorder(api, self._metrics, instance=identity)
        self._workers = Workers(self._queue, self._reconcilers(events), self._metrics, may_write=self._may_write)

    def _reconcilers(self, events: EventRecorder) -> ByKind:
        """One for each kind of resource; they share cache, applier and reporter."""
        applier = Applier(self._api, self._cache, concurrency=self._settings.applies)
        reporter = Reporter(self._api, self._cache, events, self._metrics)
        inferences = Reconciler(
            api=self._api,
            cache=self._cache,
            applier=applier,
            reporter=reporter,
            metrics=self._metrics,
            settings=self._settings.render,
            measured=self._measuring.measured,
            activity=self._measuring.activity,
            settle=timedelta(seconds=self._settings.hpa_settle_seconds),
        )
        batches = BatchReconciler(
            api=self._api,
            cache=self._cache,
            applier=applier,
            reporter=reporter,
            metrics=self._metrics,
            settings=self._settings.render,
        )
        return ByKind({names.KIND: inferences, names.BATCH_KIND: batches})

    async def run(self) -> int:
        """Run until told to stop (0), or until something that cannot be cured from within (1)."""
        health = Health(self._freshness, self._metrics, unready=self._unready)
        async with health.serve(self._settings.bind_address, self._settings.port) as port, self._answering.serve():
            _LOG.info("Serving /healthz, /readyz and /metrics on port %d", port)
            if not await self._unless_stopped(self._resync.first()):
                return 0
            _LOG.info("Synced: %d resources, %d children", len(self._cache.resources), len(self._cache.children))
            async with self._measuring.run(), self._watching() as watching:
                status = await self._lead(watching)
                # Before Kopf ends: it cancels all tasks that were started after it, those of connections among them.
                await self._answering.drain()
                return status

    def _unready(self) -> str:
        """Why nothing should be sent here yet, or no more; empty when all is well."""
        if self._stop.is_set():
            return "stopping"
        if not self._resync.synced:
            return "the first list of all objects is not complete"
        return "" if self._answering.ready else "there is no certificate to answer the API server with"

    async def _lead(self, watching: asyncio.Task[None]) -> int:
        """Become the leader, work, and leave in the order in which nobody else can write at the same time."""
        resyncing = asyncio.create_task(self._resync.forever(), name="resync")
        leading = asyncio.create_task(self._work(), name="lead")
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait({watching, resyncing, leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            status = 0 if self._stop.is_set() else _report_end(watching, resyncing, leading)
        finally:
            lost = leading.done()
            await self._workers.stop(0 if lost else self._settings.shutdown_seconds)
            for task in (resyncing, leading, stopping):
                task.cancel()
            await asyncio.gather(resyncing, leading, stopping, return_exceptions=True)
            if self._settings.leader_elect:
                await self._leader.release()
        _LOG.info("Stopped")
        return status

    async def _work(self) -> None:
        await self._measuring.begun()
        if not self._settings.leader_elect:
            self._metrics.is_leader.set(1)
            self._workers.start(self._settings.workers)
            await self._workers.wait()
            return
        await self._leader.acquire()
        self._workers.start(self._settings.workers)
        await self._leader.hold()

    def _may_write(self) -> bool:
        return self._leader.leads or not self._settings.leader_elect

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[asyncio.Task[None]]:
        """Kopf, which installs signal handlers of its own that ours must replace once it is up.

        When it ends, Kopf cancels every task that was started after it, so it is the last to be stopped.
        """
        halt, ready = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(
            watch(
                self._on_event,
                kinds=self._kinds,
                freshness=self._freshness,
                kubeconfig=self._settings.kubeconfig,
                namespaces=self._settings.namespaces,
                stop=halt,
                ready=ready,
            ),
            name="kopf",
        )
        up = asyncio.create_task(ready.wait(), name="kopf-up")
        await asyncio.wait({task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        _stop_on_signals(self._stop)
        try:
            yield task
        finally:
            halt.set()
            await asyncio.wait({task}, timeout=_KOPF_EXIT_S)

    async def _unless_stopped(self, work: Any) -> bool:
        """Do this; False when told to stop before it was done."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True

    def _on_event(self, kind: Kind, body: Mapping[str, Any], deleted: bool) -> None:
        self._metrics.watch_events.labels(kind.name).inc()
        for owner in self._cache.observe(kind, body, deleted=deleted):
            if kind in RESOURCES:
                self._queue.add(owner)
            else:
                self._queue.add_after(owner, _COALESCE_S)  # children change in bursts; one look is enough

    def _enqueue(self, owners: Iterable[Owner]) -> None:
        for owner in owners:
            self._queue.add(owner)


def _report_end(watching: asyncio.Task[Any], resyncing: asyncio.Task[Any], leading: asyncio.Task[Any]) -> int:
    """Say what ended although nobody asked for it; Kubernetes starts the process again."""
    for task in (leading, watching, resyncing):
        if task.done() and not task.cancelled():
            error = task.exception()
            if isinstance(error, LeaderLostError):
                _LOG.error("No longer the leader: %s", error)
            elif error is not None:
                _LOG.error("%s failed", task.get_name(), exc_info=error)
            else:
                _LOG.error("%s ended", task.get_name())
    return 1
