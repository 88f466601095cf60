"""Restricts the webhook to callers with a client certificate: the API server."""

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
    "The webhook requires a client certificate (chart value webhook.clientCertificate). Set one for the API server in "
    "the kubeConfigFile of its AdmissionConfiguration."
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Issuers(NamedTuple):
    """Accepted callers: those with a certificate of these CAs (PEM) and one of these common names."""

    authorities: str
    names: frozenset[str]


Source = Callable[[], Awaitable[Issuers]]


def published(api: ApiServer, names: frozenset[str] = frozenset()) -> Source:
    """The published CA and names of the API server's front proxy; `names` replaces the published names."""

    async def read() -> Issuers:
        found = await RequestHeader.read(api)
        return Issuers(found.authorities, names or found.names)

    return read


def mounted(file: Path, names: frozenset[str]) -> Source:
    """The CAs of a file, which may change."""

    async def read() -> Issuers:
        return Issuers(await asyncio.to_thread(file.read_text, encoding="ascii"), names)

    return read


class Callers:
    """Accepts requests with a client certificate of the current issuers; none before the issuers are known."""

    def __init__(self, authorities: ClientAuthorities, source: Source) -> None:
        self._authorities = authorities
        self._source = source
        self._issuers: Issuers | None = None

    @property
    def ready(self) -> bool:
        """Whether the issuers are known."""
        return self._issuers is not None

    async def keep(self, seconds: float) -> None:
        """Refresh the issuers at intervals, without end. After a failure the previous ones stay in effect."""
        while True:
            try:
                await self.refresh()
            except (ApiError, OSError, ValueError) as error:
                _LOG.warning("Reading the CA of the API server's client certificate failed: %s", error)
            await asyncio.sleep(seconds if self.ready else _RETRY_S)

    async def refresh(self) -> None:
        """Read the source.

        Raises:
            ApiError: The API server could not be read.
            OSError: The file could not be read, or contains no CA.
            ValueError: The content is invalid.
        """
        issuers = await self._source()
        self._authorities.trust(issuers.authorities)
        self._issuers = issuers

    def guarded(self, routes: Iterable[web.AbstractRouteDef]) -> list[web.AbstractRouteDef]:
        """The same routes, restricted to accepted clients. The body of other requests is not read."""
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
            # The connection may have begun before the server requested client certificates; a new one presents its own.
            refusal.force_close()
            return refusal

        return guard
