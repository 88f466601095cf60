"""The HTTPS side of the process: what the API server calls, on every replica, leader or not."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web

from pdinference.admission.webhook import WEBHOOK_RULES
from pdinference.autoscaling.registration import API_SERVICE
from pdinference.cluster.client import ApiServer
from pdinference.controller.settings import OperatorSettings
from pdinference.controller.supervisor import Supervisor
from pdinference.serving import (
    Certificates,
    MountedCertificates,
    SelfManagedCertificates,
    TLSServer,
    api_service,
    webhook_configurations,
)

_LOG = logging.getLogger(__name__)


class Answering:
    """Serves routes behind TLS, with a certificate that is kept fresh.

    Args:
        routes: What to answer.
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
        self._routes = list(routes)
        self._server: TLSServer | None = None

    @property
    def ready(self) -> bool:
        """Whether calls can succeed; True when there is nothing to serve."""
        return self._certificates is None or self._certificates.ready

    @property
    def context(self) -> ssl.SSLContext | None:
        """What connections are made with; None when there is nothing to serve."""
        return None if self._certificates is None else self._certificates.context

    def add(self, routes: Iterable[web.AbstractRouteDef]) -> None:
        """Answer these too; before `serve`."""
        self._routes.extend(routes)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Answer until the end of the block."""
        if self._certificates is None:
            yield
            return
        tls = self._settings.tls
        self._server = TLSServer(self._routes, self._certificates.context)
        async with (
            self._supervisor.running("certificates", self._certificates.keep(tls.check_seconds)),
            self._server.serve(self._settings.bind_address, tls.port, drain=tls.drain_seconds) as port,
        ):
            _LOG.info("Serving HTTPS on port %d", port)
            yield

    async def drain(self) -> None:
        """Go on answering for a while after the process was told to stop: the API server hears of it later than we."""
        if self._server is not None:
            self._server.leave()
            await asyncio.sleep(self._settings.tls.drain_seconds)


def _certificates(settings: OperatorSettings, api: ApiServer) -> Certificates:
    tls = settings.tls
    holders = [*webhook_configurations(tls.webhook, WEBHOOK_RULES)] if tls.webhook else []
    if settings.metrics_service is not None:
        holders.append(api_service(API_SERVICE, settings.metrics_service))
    if tls.folder is not None:
        return MountedCertificates(api, tls.folder, holders=holders)
    return SelfManagedCertificates(api, (settings.lease_namespace, tls.secret), hosts=tls.hosts, holders=holders)
