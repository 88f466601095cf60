"""The components of the process and their wiring; `run` starts and stops them.

Tests: tests/integration/test_operator.py, tests/integration/test_faults.py
"""

import logging
import os
import socket
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from pdinference.admission.webhook import admission_routes
from pdinference.api import names
from pdinference.batch.reconcile import BatchReconciler
from pdinference.cluster.apply import Applier
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.discovery import ServedKinds
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import RESOURCES, Kind, Owner, watched
from pdinference.cluster.replicas import ReplicaWriter
from pdinference.controller.events import EventRecorder
from pdinference.controller.metrics import Metrics
from pdinference.controller.queue import WorkQueue
from pdinference.controller.status_writer import Reporter
from pdinference.controller.supervisor import Supervisor
from pdinference.controller.workers import KindDispatcher, Workers
from pdinference.examination.client import Examinations
from pdinference.examination.effective_spec import EffectiveSpecs
from pdinference.examination.tasks import PROGRAM
from pdinference.inference.execute import Executor
from pdinference.inference.reconcile import Reconciler
from pdinference.inference.snapshotter import Snapshotter
from pdinference.isolation.process import ChildProgram, IsolatedProcess, LaneLimits
from pdinference.runtime.freshness import Freshness
from pdinference.runtime.leader import AlwaysLeader, Leader
from pdinference.runtime.load_monitor import LoadMonitor
from pdinference.runtime.resync import Resync
from pdinference.runtime.settings import OperatorSettings
from pdinference.runtime.tls_endpoint import TlsEndpoint

_LOG = logging.getLogger(__name__)
_COALESCE_S = 0.1
_LANES = {
    "admission": LaneLimits(cpu_seconds=2, seconds=9, patience=9.5),  # the API server waits for 10 s
    "reconcile": LaneLimits(cpu_seconds=5, seconds=20, patience=120),
}


class Application:
    """The components of the process."""

    def __init__(self, settings: OperatorSettings, api: ApiServer) -> None:
        self.metrics = Metrics()
        self.supervisor = Supervisor(self.metrics)
        self.cache = Cache(self._note_unreadable)
        self.served_kinds = ServedKinds(api)
        self.kinds = watched(keda=settings.render.keda is not None)
        self._queue: WorkQueue[Owner] = WorkQueue(self.metrics)
        identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.resync = Resync(
            api,
            self.cache,
            self.metrics,
            namespaces=settings.namespaces,
            kinds=self.kinds,
            interval=settings.resync_seconds,
            enqueue=self._enqueue,
        )
        self.freshness = Freshness(on_listed=self.resync.request)
        self.leader = self._leader(settings, api, identity)
        self.isolated = IsolatedProcess(ChildProgram(PROGRAM, settings.render), _LANES, self.metrics.registry)
        admission = admission_routes(self.isolated.lanes["admission"], self.metrics.registry)
        self.tls_endpoint = TlsEndpoint(settings, api, self.supervisor, admission)
        self.load_monitor = LoadMonitor(
            settings,
            api,
            self.cache,
            self.tls_endpoint,
            self.supervisor,
            registry=self.metrics.registry,
            enqueue=self._enqueue,
        )
        reconcilers = self._reconcilers(settings, api, EventRecorder(api, self.metrics, instance=identity))
        self.workers = Workers(
            self._queue, reconcilers, self.metrics, self.supervisor, may_write=lambda: self.leader.leads
        )

    def on_event(self, kind: Kind, body: Mapping[str, Any], deleted: bool) -> None:
        """Handle a watch event."""
        self.metrics.watch_events.labels(kind.name).inc()
        for owner in self.cache.observe(kind, body, deleted=deleted):
            if kind in RESOURCES:
                self._queue.add(owner)
            else:
                self._queue.add_after(owner, _COALESCE_S)  # children change in bursts; one reconcile is enough

    def _note_unreadable(self, kind: Kind) -> None:
        self.metrics.unreadable.labels(kind.name).inc()
        _LOG.warning("Skipping a %s that cannot be read", kind.name, exc_info=True)

    def _enqueue(self, owners: Iterable[Owner]) -> None:
        for owner in owners:
            self._queue.add(owner)

    def _leader(self, settings: OperatorSettings, api: ApiServer, identity: str) -> Leader | AlwaysLeader:
        def on_change(leads: bool) -> None:
            self.metrics.is_leader.set(int(leads))

        if not settings.leader_elect:
            return AlwaysLeader(on_change)
        return Leader(api, namespace=settings.lease_namespace, identity=identity, on_change=on_change)

    def _reconcilers(self, settings: OperatorSettings, api: ApiServer, events: EventRecorder) -> KindDispatcher:
        """A reconciler for each kind of resource; they share cache, applier and reporter."""
        applier = Applier(api, self.cache, concurrency=settings.applies, applied=self.served_kinds.applied)
        reporter = Reporter(api, self.cache, events, self.metrics)
        examinations = Examinations(self.isolated.lanes["reconcile"])
        history = History(api, self.cache)
        specs = EffectiveSpecs(examinations, history)
        inferences = Reconciler(
            cache=self.cache,
            snapshotter=Snapshotter(self.cache, history, self.load_monitor.observations),
            executor=Executor(
                api=api,
                specs=specs,
                applier=applier,
                replicas=ReplicaWriter(api, self.cache),
                history=history,
                metrics=self.metrics,
            ),
            reporter=reporter,
            metrics=self.metrics,
            specs=specs,
        )
        batches = BatchReconciler(
            api=api,
            cache=self.cache,
            applier=applier,
            reporter=reporter,
            metrics=self.metrics,
            settings=settings.render,
            examinations=examinations,
            specs=specs,
            progress=self.load_monitor.progress,
        )
        return KindDispatcher({names.KIND: inferences, names.BATCH_KIND: batches})
