"""The operator process, from start to stop.

Tests: tests/integration/test_operator.py, tests/integration/test_faults.py
"""

import asyncio
import logging
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from pdinference.cluster.client import ApiServer, load_configuration
from pdinference.cluster.kubeconfig import ConfigurationError
from pdinference.runtime import logs
from pdinference.runtime.application import Application
from pdinference.runtime.health import Health
from pdinference.runtime.leader import LeaderLostError
from pdinference.runtime.settings import OperatorSettings
from pdinference.runtime.watch import Watches

_LOG = logging.getLogger(__name__)
_KOPF_EXIT_S = 5.0


def run(settings: OperatorSettings) -> int:
    """Run the operator until SIGTERM or SIGINT. Returns the exit status."""
    logs.configure(settings)
    _allow_connections()
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
        return await Operator(settings, Application(settings, api), stop).run()
    finally:
        await api.close()


def _allow_connections() -> None:
    """Raise the limit on open files: many containers start with 1,024, and unresponsive pods occupy connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


class Operator:
    """Starts the components of the process in order, and stops them.

    Args:
        stop: Set to stop the operator gracefully.
    """

    def __init__(self, settings: OperatorSettings, application: Application, stop: asyncio.Event) -> None:
        self._settings = settings
        self._application = application
        self._stop = stop

    async def run(self) -> int:
        """Run until a signal to stop (0), or until a failure that requires a new process (1)."""
        health = Health(
            self._application.freshness,
            self._application.metrics,
            self._application.supervisor,
            gauges=self._application.load_monitor.gauges.text,
            unready=self._unready,
        )
        async with (
            health.serve(self._settings.bind_address, self._settings.port) as port,
            self._application.supervisor.running("isolated-process", self._application.isolated.keep()),
            self._application.tls_endpoint.serve(),
        ):
            _LOG.info("Serving /healthz, /readyz and /metrics on port %d", port)
            if not await self._unless_stopped(self._application.resync.first()):
                return 0
            _LOG.info(
                "Synced: %d resources, %d children",
                len(self._application.cache.resources),
                len(self._application.cache.children),
            )
            async with self._application.load_monitor.run(), self._watching() as watching:
                status = await self._lead(watching)
                await self._application.tls_endpoint.drain()
                return status

    def _unready(self) -> str:
        """Why the process is not ready; empty when it is."""
        if self._stop.is_set():
            return "stopping"
        if not self._application.resync.synced:
            return "the first list of all objects is not complete"
        if not self._application.isolated.ready.is_set():
            return "the process for examinations is not ready"
        return "" if self._application.tls_endpoint.ready else "the HTTPS endpoint has no certificate yet"

    async def _lead(self, watching: asyncio.Task[None]) -> int:
        """Become the leader and reconcile. The Lease is released last, so that only one process writes."""
        resyncing = asyncio.create_task(self._application.resync.forever(), name="resync")
        leading = asyncio.create_task(self._work(), name="lead")
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait({watching, resyncing, leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            status = 0 if self._stop.is_set() else _report_end(watching, resyncing, leading)
        finally:
            lost = leading.done()
            await self._application.workers.stop(0 if lost else self._settings.shutdown_seconds)
            for task in (resyncing, leading, stopping):
                task.cancel()
            await asyncio.gather(resyncing, leading, stopping, return_exceptions=True)
            await self._application.leader.release()
        _LOG.info("Stopped")
        return status

    async def _work(self) -> None:
        await self._application.load_monitor.wait_for_activity()
        await self._application.leader.acquire()
        self._application.workers.start(self._settings.workers)
        await self._application.leader.hold()

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run the watches. Kopf takes the signals at each start, so they are taken back then."""
        watches = Watches(
            self._application.on_event,
            kinds=self._application.kinds,
            freshness=self._application.freshness,
            kubeconfig=self._settings.kubeconfig,
            namespaces=self._settings.namespaces,
            until_served=self._application.served_kinds.until_served,
            started=partial(_stop_on_signals, self._stop),
        )
        task = asyncio.create_task(watches.run(), name="watches")
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=_KOPF_EXIT_S)

    async def _unless_stopped(self, work: Any) -> bool:
        """Await this; False if the signal to stop came first."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True


def _report_end(watching: asyncio.Task[Any], resyncing: asyncio.Task[Any], leading: asyncio.Task[Any]) -> int:
    """Log which task ended unexpectedly. Returns exit status 1; the kubelet restarts the container."""
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
