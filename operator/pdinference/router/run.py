"""The process of the router.

Tests: tests/router/test_process.py, tests/router/test_verification.py, tests/router/test_tls.py
"""

import asyncio
import gc
import logging
import resource
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from opentelemetry import trace
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.loadmetrics.scraping.fetch import Share
from pdinference.router.activity import Activity
from pdinference.router.admission_metrics import AdmissionMetrics
from pdinference.router.canary import Canary
from pdinference.router.connections import ConnectionLimits, Connections, Site
from pdinference.router.dispatch import Dispatcher, Rules
from pdinference.router.fair_shares import FairShares
from pdinference.router.faults import PodFaults
from pdinference.router.keys import Keys
from pdinference.router.lease import LeaseGuard
from pdinference.router.leaving import LEAVE_S
from pdinference.router.models import Models
from pdinference.router.monitor import Monitor
from pdinference.router.pods import Pods
from pdinference.router.record import Metrics, Telemetry
from pdinference.router.server import Front, RequestLimits, client_session, invite, unknown
from pdinference.router.tracing import Tracer
from pdinference.router.transfers import Transfers
from pdinference.router.verification import Verifier
from pdinference.router.verification_metrics import VerificationMetrics
from pdinference.serving.tls_context import CertificateError, TLSContext

_LOG = logging.getLogger(__name__)
_BACKLOG: Final = 1024
_OF_STATE: Final = ConnectionLimits(connections=256, heads=2**20)
_CERTIFICATE_S: Final = 2.0
_OBJECTS_BETWEEN_SEARCHES: Final = 10_000
"""Python's default is 700, and takes 4 % of the CPU with 200 streams."""

Discover = Callable[[], Coroutine[None, None, None]]
"""Keeps the pods up to date, until it is cancelled."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the process.

    Attributes:
        host: Address to listen on.
        port: Port for clients.
        state_port: Port of /metrics, /healthz and /readyz.
        drain_seconds: Time for running requests after SIGTERM.
        connect: Seconds that a connection to a pod may take.
        silence: Seconds after which a silent pod is probed.
        stall: Seconds without a step of its engine after which a silent pod has failed.
        transfer: Seconds that the KV cache may take from P to a D that is idle or answers later requests. With the time
            until it is noticed, below the 30 s after which P releases the blocks (vLLM's kv_lease_duration).
        verification: Whether the process becomes ready only after a canary has gone through.
        keys: API keys of clients; None admits every client.
        fair_shares: Places of requests in vLLM's queue; None for the order in which they come.
        models: What clients are told of the models while no pod answers.
        spans: Where spans go; None makes none.
        tls_folder: Where the Secret with the certificate for clients is mounted; None for HTTP.
    """

    rules: Rules
    host: str = "127.0.0.1"
    port: int = 0
    state_port: int = 0
    drain_seconds: float = 300.0
    connect: float = 3.0
    silence: float = 3.0
    stall: float = 60.0
    transfer: float = 20.0
    limits: RequestLimits = field(default_factory=RequestLimits)
    verification: VerificationMode = "Off"
    keys: Keys | None = None
    fair_shares: FairShares | None = None
    models: Models = field(default_factory=Models)
    tls_folder: Path | None = None
    spans: trace.TracerProvider | None = None


@dataclass(frozen=True, slots=True)
class Serving:
    """A router that serves.

    Attributes:
        port: Port for clients, for callers that passed port 0.
        state_port: Port of its state.
        leave: From now on, closes each connection of a client after its next response.
        tasks: Tasks without which the router cannot work. They end only by a fault.
    """

    port: int
    state_port: int
    leave: Callable[[], None]
    tasks: tuple[asyncio.Task[None], ...]


async def run(settings: Settings, pods: Pods, discover: Discover) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests.

    Raises:
        RuntimeError: A task has ended without which the router cannot work. The running requests are finished.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _prepare_process()
    async with serving(settings, pods, discover) as front:
        stopping = asyncio.create_task(stop.wait(), name="stop")
        done, _ = await asyncio.wait((stopping, *front.tasks), return_when=asyncio.FIRST_COMPLETED)
        front.leave()
        if stopping not in done:
            ended = done.pop()
            cause = None if ended.cancelled() else ended.exception()
            # The error below ends the process only after the last requests, which may take minutes.
            _LOG.error("Task %s has ended, so the router shuts down", ended.get_name(), exc_info=cause)
            raise RuntimeError(f"task {ended.get_name()} has ended") from cause
        await asyncio.sleep(LEAVE_S)


def _prepare_process() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # containers may begin with 1,024; a stream takes two
    # Nearly all objects are those of imports. Each search through them stops all streams for 45 ms.
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES)


@asynccontextmanager
async def serving(settings: Settings, pods: Pods, discover: Discover) -> AsyncIterator[Serving]:
    """Serve until the end of the block."""
    metrics = Metrics()
    async with client_session(settings.connect) as session, AsyncExitStack() as stack:
        dispatcher = Dispatcher(pods, session, settings.rules)
        activity = Activity(pods, settings.rules.max_wait)
        metrics.queued.set_function(lambda: dispatcher.waits.present)
        metrics.idle.set_function(lambda: activity.idle_seconds)
        telemetry = Telemetry(metrics, Tracer(settings.spans))
        front = Front(
            dispatcher,
            activity,
            telemetry,
            settings.limits,
            keys=settings.keys,
            fair_shares=settings.fair_shares,
            models=settings.models,
        )
        share = Share()
        monitor = Monitor(pods, session, share, silence=settings.silence, stall=settings.stall)
        # A share of its own: it waits for no reading of another task.
        leases = LeaseGuard(pods, dispatcher.links, Share(), transfer=settings.transfer)
        handover = settings.rules.handover
        transfers = Transfers(pods, share, handover.counters if handover is not None else {})
        mode = settings.verification if handover is not None else "Off"
        verifier = Verifier(pods, Canary(dispatcher, telemetry, share), mode)
        metrics.registry.register(transfers)
        metrics.registry.register(VerificationMetrics(verifier))
        metrics.registry.register(PodFaults(pods))
        metrics.registry.register(AdmissionMetrics(pods))
        tasks = [
            asyncio.create_task(discover(), name="discovery"),
            asyncio.create_task(monitor.forever(), name="monitor"),
            asyncio.create_task(leases.forever(), name="leases"),
            asyncio.create_task(transfers.forever(), name="transfers"),
            asyncio.create_task(verifier.forever(), name="verification"),
        ]
        if settings.keys is not None:
            tasks.append(asyncio.create_task(settings.keys.forever(), name="keys"))
        stack.push_async_callback(_cancel, tasks)
        state = await _server(
            _state(dispatcher, verifier, metrics), (settings.host, settings.state_port), _OF_STATE, drain_seconds=1.0
        )
        stack.push_async_callback(state.cleanup)
        tls = TLSContext()
        if settings.tls_folder is not None:
            tls.load_folder(settings.tls_folder)
            tasks.append(asyncio.create_task(_renewed(tls, settings.tls_folder), name="certificate"))
        clients = await _server(
            front.application(),
            (settings.host, settings.port),
            settings.limits.connections,
            drain_seconds=settings.drain_seconds,
            context=tls.context if tls.ready else None,
            unread_seconds=settings.limits.unread_seconds,
        )
        stack.push_async_callback(clients.cleanup)
        stack.push_async_callback(front.leaving.last_requests, clients, settings.drain_seconds)
        stack.callback(dispatcher.end)
        yield Serving(clients.addresses[0][1], state.addresses[0][1], front.leave, tuple(tasks))


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _renewed(tls: TLSContext, folder: Path) -> None:
    """Load the certificate again when its files change, until cancelled."""
    while True:
        await asyncio.sleep(_CERTIFICATE_S)
        try:
            tls.load_folder(folder)
        except CertificateError as error:
            _LOG.warning("Keeping the current certificate: %s", error)


async def _server(
    app: web.Application,
    place: tuple[str, int],
    limits: ConnectionLimits,
    *,
    drain_seconds: float,
    context: ssl.SSLContext | None = None,
    unread_seconds: float | None = None,
) -> web.AppRunner:
    # A client that goes away cancels its request at P and at D.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=drain_seconds)
    await runner.setup()
    listener = socket.create_server(place, family=_family(place[0]), backlog=_BACKLOG)
    if unread_seconds is not None:
        # Connections inherit it. Without it, a client that does not read holds its D pod for ever.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * unread_seconds))
    log = _ServerLog(logging.getLogger("aiohttp.server"))
    await Site(runner, Connections(limits), log, sock=listener, ssl_context=context, backlog=_BACKLOG).start()
    return runner


class _ServerLog(logging.LoggerAdapter[logging.Logger]):
    """Logs requests that are not correct HTTP in one line. aiohttp logs a traceback, and anyone can send them."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        if isinstance(exc_info, HttpProcessingError | web.RequestPayloadError):
            self.info(f"{msg}: %s", *args, str(exc_info).partition("\n")[0])
        else:
            super().exception(msg, *args, exc_info=exc_info, **more)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _awaited(pods: Pods) -> str:
    """Which pods the router has to see ready before it gets requests."""
    counts = []
    for role in pods.roles:
        seen = [pod.observed.ready for pod in pods if pod.observed.role is role]
        counts.append(f"{role}: {sum(seen)} of {len(seen)} pods ready")
    return f"Waiting for a ready pod of each role ({', '.join(counts)})."


def _refusal(dispatcher: Dispatcher, verifier: Verifier) -> str:
    """Why the router should get no requests; empty if it should."""
    if dispatcher.ends:
        return "The router is shutting down."  # its port for clients is closed
    return _awaited(dispatcher.pods) if dispatcher.pods.first_complete is None else verifier.refusal


def _state(dispatcher: Dispatcher, verifier: Verifier, metrics: Metrics) -> web.Application:
    async def measured(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    logged = ""

    async def ready(_request: web.Request) -> web.Response:
        nonlocal logged
        refusal = _refusal(dispatcher, verifier)
        state = refusal or "Ready: requests can be sent to P and D."
        if state != logged:  # the kubelet asks every two seconds
            _LOG.info(state)
            logged = state
        return web.Response(text=refusal, status=503) if refusal else web.Response(text="ok")

    app = web.Application()
    handlers = {"/metrics": measured, "/healthz": healthy, "/readyz": ready}
    app.add_routes([web.get(path, handler, expect_handler=invite) for path, handler in handlers.items()])
    app.add_routes([web.route("*", "/{path:.*}", unknown, expect_handler=invite)])
    return app
