"""Access to the service: the API key, and the certificate to trust. The kubelet updates their files."""

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from pdinference.api.api_keys import LONGEST_VALUE, keys_in

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_FIELDS: Final = "In the Job of a PDBatch, the file comes from the Secret in"


class AccessError(Exception):
    """A file has no usable key or certificate. The message says what to do."""


class Access:
    """What requests need.

    Args:
        key_file: File with API keys, one on each line; the first one is sent. None for a service without keys.
        certificate_file: File whose first certificate is the only one that is trusted. None for HTTP, or to trust the
            authorities of the system.

    Attributes:
        has_key: Whether an API key is sent.
        headers: Headers with the key.
        trust: Which certificates of the service are accepted, for aiohttp.

    Raises:
        AccessError: A file has no key or certificate.
    """

    def __init__(self, key_file: Path | None = None, certificate_file: Path | None = None) -> None:
        self._key_file = key_file
        self._certificate_file = certificate_file
        self._certificate = ""
        self.has_key = key_file is not None
        self.headers: dict[str, str] = {}
        self.trust: ssl.SSLContext | bool = True
        self._load_key()
        self._load_certificate()

    def reload(self) -> None:
        """Read the files again. Key and certificate stay as they were while their files have none."""
        with suppress(AccessError):
            self._load_key()
        with suppress(AccessError):
            self._load_certificate()

    def _load_key(self) -> None:
        if self._key_file is None:
            return
        try:
            with self._key_file.open("rb") as file:
                key = next(keys_in(file.read(LONGEST_VALUE)), b"").decode("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise AccessError(self._no_key(error)) from error
        if not key.isprintable() or not key:
            raise AccessError(self._no_key("it has no line of at least 16 printable characters"))
        self.headers = {"Authorization": f"Bearer {key}"}

    def _no_key(self, reason: object) -> str:
        file = self._key_file
        return (
            f"There is no API key in {file}: {reason}. {_FIELDS} spec.router.apiKeys of the PDInference: add the key "
            f"{file.name if file else ''} to it, or name another key of it in spec.apiKeyName of the PDBatch."
        )

    def _load_certificate(self) -> None:
        if self._certificate_file is None:
            return
        try:
            certificate = _first(self._certificate_file.read_text(encoding="ascii"))
            if certificate != self._certificate:  # connections that are open belong to their context
                self.trust = _trust_in(certificate)
        except (OSError, ValueError) as error:
            raise AccessError(
                f"There is no certificate in {self._certificate_file}: {error}. {_FIELDS} spec.router.tls of the "
                "PDInference: it must be of type kubernetes.io/tls."
            ) from error
        self._certificate = certificate


def _first(chain: str) -> str:
    """The first certificate of a chain: that of the server."""
    _, begin, rest = chain.partition(_BEGIN)
    body, end, _ = rest.partition(_END)
    if not begin or not end:
        raise ValueError("it is not PEM")
    return f"{begin}{body}{end}\n"


def _trust_in(certificate: str) -> ssl.SSLContext:
    """Trust in one certificate.

    The Secret in the namespace of the PDInference is the authority: only the owner of its private key can complete a
    handshake. So the name in the certificate, which may be a public one, and its issuer do not matter. Its issuers in
    the same file are not trusted, because they issue certificates to others, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context
