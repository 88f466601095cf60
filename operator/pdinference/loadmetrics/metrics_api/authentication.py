"""Request-header authentication of aggregated APIs.

Only the API server may send requests. It authenticates with a client certificate and passes the user in headers. It
publishes the CA, the names and the headers in a ConfigMap.

Tests: tests/integration/test_metrics_api.py
"""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.serving import ClientAuthorities, RequestHeader
from pdinference.serving.request_header import PATH

_LOG = logging.getLogger(__name__)
_REFRESH_S: Final = 60.0
_RETRY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class User:
    """The user who sent a request to the API server."""

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class RequestHeaderAuthenticator:
    """Authenticates requests that the API server forwards.

    Args:
        authorities: Client certificate authorities of the HTTPS server.
    """

    def __init__(self, api: ApiServer, authorities: ClientAuthorities) -> None:
        self._api = api
        self._authorities = authorities
        self._configuration: RequestHeader | None = None

    @property
    def ready(self) -> bool:
        """Whether the configuration has been read."""
        return self._configuration is not None

    async def keep(self) -> None:
        """Refresh the configuration until cancelled. Errors are logged and retried."""
        while True:
            try:
                await self.refresh()
            except (ApiError, ValueError, ssl.SSLError) as error:
                _LOG.warning("Cannot read the request-header authentication from %s: %s", PATH, error)
            await asyncio.sleep(_REFRESH_S if self.ready else _RETRY_S)

    async def refresh(self) -> None:
        """Read the configuration that the API server publishes.

        Raises:
            ApiError: The ConfigMap could not be read.
            ValueError: The ConfigMap is not valid.
        """
        configuration = await RequestHeader.read(self._api)
        self._authorities.trust(configuration.authorities)
        self._configuration = configuration

    def user(self, request: web.Request) -> User | None:
        """The user of a request; None if the API server did not forward it."""
        configuration = self._configuration
        if configuration is None:
            return None
        if not self._authorities.is_client(request, configuration.authorities, configuration.names):
            return None
        name = next((request.headers[header] for header in configuration.user_headers if header in request.headers), "")
        if not name:
            return None
        groups = (group for header in configuration.group_headers for group in request.headers.getall(header, ()))
        return User(name, tuple(groups), _extra(request, configuration.extra_prefixes))


def _extra(request: web.Request, prefixes: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for header in dict.fromkeys(key.lower() for key in request.headers):
        for prefix in prefixes:
            if header.startswith(prefix):
                found[header.removeprefix(prefix)] = tuple(request.headers.getall(header))
    return tuple(found.items())
