"""A self-managed certificate authority: pure decisions on renewal, and the certificates."""

import ipaddress
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Certificate
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BUNDLE, _AUTHORITY_KEY, _CERTIFICATE, _KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
_BACKDATED = timedelta(minutes=5)  # tolerates clock skew
_RENEWED_AT = 2 / 3  # fraction of its lifetime after which a certificate is renewed

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes of certificates.

    Attributes:
        settling: Time that a new authority is in the bundle before it signs, until all API servers have read the
        bundle.
    """

    authority: timedelta = timedelta(days=365)
    server: timedelta = timedelta(days=90)
    settling: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """The content of the Secret.

    Attributes:
        authorities: CAs, the newest first. Older ones stay until they expire, because of the certificates they signed.
        authority_key: Key of the newest CA.
    """

    authorities: tuple[Certificate, ...]
    authority_key: Key
    certificate: Certificate
    key: Key

    @classmethod
    def from_secret(cls, data: Mapping[str, str] | None) -> Self | None:
        """Read a Secret's data; None if it is empty or invalid."""
        try:
            members = {name: b64decode(text) for name, text in (data or {}).items()}
            return cls(
                authorities=tuple(x509.load_pem_x509_certificates(members[_BUNDLE])),
                authority_key=_loaded_key(members[_AUTHORITY_KEY]),
                certificate=x509.load_pem_x509_certificate(members[_CERTIFICATE]),
                key=_loaded_key(members[_KEY]),
            )
        except (KeyError, ValueError, TypeError):
            return None

    def as_secret(self) -> dict[str, str]:
        """The data of a Secret."""
        members = {
            _BUNDLE: self.bundle,
            _AUTHORITY_KEY: _pem_key(self.authority_key),
            _CERTIFICATE: _pem(self.certificate),
            _KEY: _pem_key(self.key),
        }
        return {name: b64encode(value).decode() for name, value in members.items()}

    @property
    def bundle(self) -> bytes:
        """All CAs that a client should trust, as PEM."""
        return b"".join(_pem(authority) for authority in self.authorities)

    def usable(self, hosts: tuple[str, ...], now: datetime) -> bool:
        """Whether clients that trust the bundle accept the certificate now, under all of these names."""
        return (
            now < self.certificate.not_valid_after_utc
            and _belongs(self.key, self.certificate)
            and any(_signed(self.certificate, authority) for authority in self.living(now))
            and set(hosts) <= _names(self.certificate)
        )

    def living(self, now: datetime) -> tuple[Certificate, ...]:
        """The CAs that have not expired."""
        return tuple(authority for authority in self.authorities if now < authority.not_valid_after_utc)

    @property
    def chain(self) -> bytes:
        """Certificate and key as PEM, in one file for Python's `ssl`."""
        return _pem(self.certificate) + _pem_key(self.key)


def renewed(
    current: KeyMaterial | None, hosts: tuple[str, ...], now: datetime, lifetimes: Lifetimes, *, published: bool
) -> KeyMaterial:
    """The new content of the Secret; `current` itself if nothing is due.

    A new CA is first only added to the bundle. It signs the certificate when clients have had time to read the bundle,
    so that no call fails; at once if the current certificate is no longer usable.

    Args:
        current: Its current content.
        hosts: Names and addresses under which clients reach the server.
        now: Current time.
        lifetimes: How long new certificates are valid.
        published: Whether the current bundle is published.
    """
    living = current.living(now) if current else ()
    usable = current is not None and current.usable(hosts, now)
    if current is None or not living or not _belongs(current.authority_key, living[0]) or _due(living[0], now):
        key = _new_key()
        living = (_new_authority(key, now, lifetimes), *living)
    else:
        key = current.authority_key

    newest = living[0]
    settled = published and now - newest.not_valid_before_utc >= _BACKDATED + lifetimes.settling
    if current is not None and usable:
        # Clients that trust the current certificate also trust its successor from the same CA.
        replaced = _due(current.certificate, now) if _signed(current.certificate, newest) else settled
        if not replaced:
            unchanged = living == current.authorities
            return current if unchanged else KeyMaterial(living, key, current.certificate, current.key)
    server_key = _new_key()
    valid = _Validity.starting(now, lifetimes.server)
    return KeyMaterial(living, key, _new_certificate(server_key, hosts, newest, key, valid), server_key)


def _due(certificate: Certificate, now: datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + life * _RENEWED_AT


def _belongs(key: Key, certificate: Certificate) -> bool:
    return key.public_key() == certificate.public_key()


def _signed(certificate: Certificate, authority: Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *map(str, addresses)}


def _new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def _new_authority(key: Key, now: datetime, lifetimes: Lifetimes) -> Certificate:
    # The time in its name distinguishes two generations for clients that find an issuer by name.
    name = _name(f"pdinference operator CA {now:%Y-%m-%dT%H:%M:%S}")
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        _builder(name, name, key, key, _Validity.starting(now, lifetimes.authority))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _new_certificate(
    key: Key, hosts: tuple[str, ...], authority: Certificate, authority_key: Key, valid: "_Validity"
) -> Certificate:
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    return (
        _builder(_name("pdinference operator"), authority.subject, key, authority_key, valid)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


class _Validity(NamedTuple):
    since: datetime
    until: datetime

    @classmethod
    def starting(cls, now: datetime, life: timedelta) -> Self:
        return cls(now - _BACKDATED, now + life)


def _builder(subject: x509.Name, issuer: x509.Name, key: Key, signer: Key, valid: _Validity) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid.since)
        .not_valid_after(valid.until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _loaded_key(pem: bytes) -> Key:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not one of our keys")
    return key
