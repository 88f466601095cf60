"""The API server as the only caller of the webhook, by the client certificate that it was configured to present."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.serving.clients import ClientAuthorities
from pdinference.serving.request_header import RequestHeader

_LOG = logging.getLogger(__name__)
_RETRY_S: Final = 2.0
_REFUSAL: Final = (
    "The webhook answers the API server alone, which has to present a client certificate (chart value "
    "webhook.clientCertificate): name one in the kubeConfigFile of its AdmissionConfiguration."
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Issuers(NamedTuple):
    """Who may call: certificates of these CAs (PEM) with one of these common names."""

    authorities: str
    names: frozenset[str]


Source = Callable[[], Awaitable[Issuers]]


def published(api: ApiServer, names: frozenset[str] = frozenset()) -> Source:
    """The CA and the names of the API server's front proxy, which it publishes; other names if any are given."""

    async def read() -> Issuers:
        found = await RequestHeader.read(api)
        return Issuers(found.authorities, names or found.names)

    return read


def mounted(file: Path, names: frozenset[str]) -> Source:
    """CAs of a file, which may change."""

    async def read() -> Issuers:
        return Issuers(await asyncio.to_thread(file.read_text, encoding="ascii"), names)

    return read


class Callers:
    """Lets requests of known clients in; before it knows any, none."""

    def __init__(self, authorities: ClientAuthorities, source: Source) -> None:
        self._authorities = authorities
        self._source = source
        self._issuers: Issuers | None = None

    @property
    def ready(self) -> bool:
        """Whether anybody can be let in."""
        return self._issuers is not None

    async def keep(self, seconds: float) -> None:
        """Follow the source, for ever; what fails is tried again, and what was known stays."""
        while True:
            try:
                await self.refresh()
            except (ApiError, OSError, ValueError) as error:
                _LOG.warning("The CA of the API server's client certificate could not be read: %s", error)
            await asyncio.sleep(seconds if self.ready else _RETRY_S)

    async def refresh(self) -> None:
        """Read the source.

        Raises:
            ApiError: It is the API server, which does not answer.
            OSError: It is a file that cannot be read, or holds no CA.
            ValueError: It is not as it should be.
        """
        issuers = await self._source()
        self._authorities.trust(issuers.authorities)
        self._issuers = issuers

    def guarded(self, routes: Iterable[web.AbstractRouteDef]) -> list[web.AbstractRouteDef]:
        """The same routes, for known clients alone; of others not even the body is read."""
        return [
            web.RouteDef(route.method, route.path, self._guard(route.handler), route.kwargs)
            if isinstance(route, web.RouteDef)
            else route
            for route in routes
        ]

    def _guard(self, handler: Handler) -> Handler:
        @wraps(handler)
        async def guard(request: web.Request) -> web.StreamResponse:
            issuers = self._issuers
            if issuers is not None and self._authorities.is_client(request, *issuers):
                return await handler(request)
            body = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": _REFUSAL}
            refusal = web.json_response({**body, "reason": "Forbidden", "code": 403}, status=403)
            # The connection may be older than our asking for certificates; the next one brings its own.
            refusal.force_close()
            return refusal

        return guard
