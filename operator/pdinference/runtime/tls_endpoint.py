"""The HTTPS endpoint that the API server calls; every replica serves it, leader or not."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from pdinference.admission.webhook import WEBHOOK_RULES
from pdinference.cluster.client import ApiServer
from pdinference.controller.supervisor import Supervisor
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE
from pdinference.runtime.settings import OperatorSettings
from pdinference.serving import (
    Callers,
    Certificates,
    ClientAuthorities,
    MountedCertificates,
    SelfManagedCertificates,
    TLSServer,
    api_service,
    mounted,
    published,
    webhook_configurations,
)

_LOG = logging.getLogger(__name__)


class TlsEndpoint:
    """Serves routes over TLS, with a certificate that is renewed in place.

    Args:
        routes: The webhooks. If a client certificate is required, only callers that present one can use them.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        api: ApiServer,
        supervisor: Supervisor,
        routes: Iterable[web.AbstractRouteDef],
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._certificates = _certificates(settings, api) if settings.tls.enabled else None
        context = None if self._certificates is None else self._certificates.context
        self.clients = None if context is None else ClientAuthorities(context)
        """The CAs of client certificates; None when TLS is off."""
        self._callers = _callers(settings, api, self.clients) if self.clients is not None else None
        self._routes = list(routes) if self._callers is None else self._callers.guarded(routes)
        self._server: TLSServer | None = None

    @property
    def ready(self) -> bool:
        """Whether calls can succeed; True when TLS is off."""
        if self._callers is not None and not self._callers.ready:
            return False
        return self._certificates is None or self._certificates.ready

    def add(self, routes: Iterable[web.AbstractRouteDef]) -> None:
        """Add routes; only before `serve`."""
        self._routes.extend(routes)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve until the end of the block."""
        if self._certificates is None:
            yield
            return
        tls = self._settings.tls
        tasks = {"certificates": self._certificates.keep(tls.check_seconds)}
        if self._callers is not None:
            tasks["callers"] = self._callers.keep(tls.check_seconds)
        self._server = TLSServer(self._routes, self._certificates.context)
        async with AsyncExitStack() as stack:
            for name, work in tasks.items():
                await stack.enter_async_context(self._supervisor.running(name, work))
            serving = self._server.serve(self._settings.bind_address, tls.port, drain=tls.drain_seconds)
            _LOG.info("Serving HTTPS on port %d", await stack.enter_async_context(serving))
            yield

    async def drain(self) -> None:
        """Serve for a while after the signal to stop, because the endpoint is removed elsewhere later."""
        if self._server is not None:
            self._server.leave()
            await asyncio.sleep(self._settings.tls.drain_seconds)


def _callers(settings: OperatorSettings, api: ApiServer, clients: ClientAuthorities) -> Callers | None:
    tls = settings.tls
    if not tls.client_certificate:
        return None
    names = frozenset(tls.client_names)
    return Callers(clients, published(api, names) if tls.client_ca is None else mounted(tls.client_ca, names))


def _certificates(settings: OperatorSettings, api: ApiServer) -> Certificates:
    tls = settings.tls
    holders = [*webhook_configurations(tls.webhook, WEBHOOK_RULES)] if tls.webhook else []
    if settings.metrics_service is not None:
        holders.append(api_service(API_SERVICE, settings.metrics_service))
    if tls.folder is not None:
        return MountedCertificates(api, tls.folder, holders=holders)
    return SelfManagedCertificates(api, (settings.lease_namespace, tls.secret), hosts=tls.hosts, holders=holders)
