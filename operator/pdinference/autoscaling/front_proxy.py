"""Who asks: only the API server may, which proves itself by its certificate and names the user in headers.

That is the request-header authentication of aggregated APIs. Which CA, which names and which headers, the API server
publishes in a ConfigMap.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError

_LOG = logging.getLogger(__name__)
_PATH: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_REFRESH_S: Final = 60.0
_RETRY_S: Final = 2.0
_COMMON_NAME: Final = "commonName"


@dataclass(frozen=True, slots=True)
class User:
    """Who sent a request to the API server."""

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class _Agreement:
    """What the API server published."""

    authorities: str
    names: frozenset[str]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    @classmethod
    def read(cls, data: Mapping[str, str]) -> "_Agreement":
        def values(key: str) -> tuple[str, ...]:
            return tuple(json.loads(data.get(f"requestheader-{key}") or "[]"))

        return cls(
            authorities=data.get("requestheader-client-ca-file", ""),
            names=frozenset(values("allowed-names")),
            user_headers=values("username-headers"),
            group_headers=values("group-headers"),
            extra_prefixes=tuple(prefix.lower() for prefix in values("extra-headers-prefix")),
        )


class FrontProxy:
    """Authenticates requests that the API server passes on.

    Args:
        context: Of the HTTPS server; from the first `refresh` on it asks clients for a certificate, without insisting,
            because webhooks are called without one.
    """

    def __init__(self, api: ApiServer, context: ssl.SSLContext) -> None:
        self._api = api
        self._context = context
        self._agreement: _Agreement | None = None
        self._loaded: set[str] = set()

    @property
    def ready(self) -> bool:
        """Whether anybody can be authenticated."""
        return self._agreement is not None

    async def keep(self) -> None:
        """Follow what the API server publishes, for ever; what fails is tried again."""
        while True:
            try:
                await self.refresh()
            except (ApiError, ValueError, ssl.SSLError) as error:
                _LOG.warning("Who may ask for metrics could not be read from %s: %s", _PATH, error)
            await asyncio.sleep(_REFRESH_S if self.ready else _RETRY_S)

    async def refresh(self) -> None:
        """Read what the API server publishes.

        Raises:
            ApiError: It could not be read.
            ValueError: It is not as it should be.
        """
        found = await self._api.get(_PATH)
        agreement = _Agreement.read(found.get("data") or {})
        if not agreement.authorities:
            raise ValueError("the API server has no --requestheader-client-ca-file, so it passes no requests on")
        if agreement.authorities not in self._loaded:
            self._context.load_verify_locations(cadata=agreement.authorities)
            self._context.verify_mode = ssl.CERT_OPTIONAL
            self._loaded.add(agreement.authorities)
        self._agreement = agreement

    def user(self, request: web.Request) -> User | None:
        """Who asks; None for everybody whom the API server did not send."""
        agreement = self._agreement
        if agreement is None or request.transport is None:
            return None
        connection: ssl.SSLObject | None = request.transport.get_extra_info("ssl_object")
        if connection is None or not self._is_proxy(connection, agreement):
            return None
        name = next((request.headers[header] for header in agreement.user_headers if header in request.headers), "")
        if not name:
            return None
        groups = (group for header in agreement.group_headers for group in request.headers.getall(header, ()))
        return User(name, tuple(groups), _extra(request, agreement.extra_prefixes))

    def _is_proxy(self, connection: ssl.SSLObject, agreement: _Agreement) -> bool:
        """TLS has checked the chain; what is left is the name, and that the CA is still the API server's."""
        certificate = connection.getpeercert()
        if not certificate:
            return False
        if agreement.names and not agreement.names & _common_names(certificate):
            return False
        # A CA cannot be taken out of a context. Once it was replaced, its certificates are refused here.
        return self._loaded == {agreement.authorities} or _issued_by(connection, agreement.authorities)


def _common_names(certificate: Mapping[str, Any]) -> set[str]:
    return {value for part in certificate.get("subject", ()) for key, value in part if key == _COMMON_NAME}


def _issued_by(connection: ssl.SSLObject, authorities: str) -> bool:
    certificate = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
    for authority in x509.load_pem_x509_certificates(authorities.encode()):
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _extra(request: web.Request, prefixes: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for header in dict.fromkeys(key.lower() for key in request.headers):
        for prefix in prefixes:
            if header.startswith(prefix):
                found[header.removeprefix(prefix)] = tuple(request.headers.getall(header))
    return tuple(found.items())
