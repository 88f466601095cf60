"""A TLS context of a server whose certificate is replaced while it serves.

Tests: tests/serving/test_certificates.py, tests/router/test_tls.py
"""

import logging
import ssl
import tempfile
from pathlib import Path

_LOG = logging.getLogger(__name__)


class CertificateError(Exception):
    """There is no usable certificate; the message says what to do."""


class TLSContext:
    """The context. New connections use the certificate that was loaded last.

    Attributes:
        context: For the server.
        ready: Whether there is a certificate.
    """

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.ready = False
        self._loaded = b""

    def load(self, chain: bytes) -> None:
        """Use this certificate and key (PEM, one after the other) for new connections.

        Raises:
            ssl.SSLError: They do not match.
        """
        if chain == self._loaded:
            return
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # readable only by this user; `ssl` reads only files
            file.write(chain)
            file.flush()
            self.context.load_cert_chain(file.name)
        self._loaded = chain
        self.ready = True
        _LOG.info("Serving with a new certificate")

    def load_folder(self, folder: Path) -> None:
        """Use `tls.crt` and `tls.key` of a mounted Secret.

        Raises:
            CertificateError: They are missing, or do not match.
        """
        try:
            chain = b"\n".join((folder / name).read_bytes() for name in ("tls.crt", "tls.key"))
        except OSError as error:
            raise CertificateError(f"no certificate in {folder} yet: {error}") from error
        try:
            self.load(chain)
        except ssl.SSLError as error:  # one of the two files was replaced before the other
            raise CertificateError(f"{folder}: certificate and key do not match: {error}") from error
