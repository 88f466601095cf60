"""Authentication of clients of the HTTPS server by certificate.

One server has clients of several CAs (the API server as a front proxy, and as a caller of webhooks). So TLS accepts a
certificate of any of these CAs without requiring one, and each route checks the issuer.

Tests: tests/serving/test_callers.py
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web
from cryptography import x509
from cryptography.exceptions import InvalidSignature

_COMMON_NAME: Final = "commonName"


class ClientAuthorities:
    """The CAs of accepted client certificates.

    Args:
        context: TLS context of the HTTPS server. From the first `trust` on it requests client certificates.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._loaded: set[str] = set()

    def trust(self, authorities: str) -> None:
        """Accept certificates of these CAs, too.

        Raises:
            ssl.SSLError: They are not PEM.
        """
        if authorities in self._loaded:
            return
        self._context.load_verify_locations(cadata=authorities)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._loaded.add(authorities)

    def is_client(self, request: web.Request, authorities: str, names: frozenset[str]) -> bool:
        """Whether a request has a certificate of these CAs with one of these common names.

        Args:
            request: TLS has verified its certificate against all trusted CAs.
            authorities: CAs that were passed to `trust`, as PEM.
            names: Allowed common names; empty for any.
        """
        connection: ssl.SSLObject | None = None
        if request.transport is not None:
            connection = request.transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert() if connection is not None else None
        if connection is None or not certificate:
            return False
        if names and not names & _common_names(certificate):
            return False
        # A CA cannot be removed from a context, so certificates of a replaced CA are refused here.
        return self._loaded == {authorities} or _issued_by(connection, authorities)


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
