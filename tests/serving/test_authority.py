"""Renewal of certificates."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from pdinference.serving.authority import KeyMaterial, Lifetimes, renewed

HOSTS = ("operator.pdinference-system.svc", "127.0.0.1")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
LIFETIMES = Lifetimes()
DAY = timedelta(days=1)


def at(days: float, current: KeyMaterial | None, *, published: bool = True) -> KeyMaterial:
    return renewed(current, HOSTS, NOW + days * DAY, LIFETIMES, published=published)


@pytest.fixture(scope="module")
def first() -> KeyMaterial:
    return at(0, None)


def test_an_empty_secret_is_filled(first: KeyMaterial) -> None:
    first.certificate.verify_directly_issued_by(first.authorities[0])
    names = first.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOSTS[0]]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == [HOSTS[1]]


def test_it_survives_the_secret(first: KeyMaterial) -> None:
    read = KeyMaterial.from_secret(first.as_secret())
    assert read is not None
    assert (read.bundle, read.chain) == (first.bundle, first.chain)
    assert at(1, read) is read


@pytest.mark.parametrize(
    "data",
    [None, {}, {"tls.crt": "", "tls.key": ""}, dict.fromkeys(["ca.crt", "ca.key", "tls.crt", "tls.key"], "no base64!")],
    ids=str,
)
def test_a_secret_that_holds_something_else_counts_as_empty(data: dict[str, str] | None) -> None:
    assert KeyMaterial.from_secret(data) is None


def test_nothing_is_renewed_that_is_not_due(first: KeyMaterial) -> None:
    for days in (0, 1, 30, 59):
        assert at(days, first) is first


def test_a_certificate_is_renewed_before_it_expires_and_its_ca_stays(first: KeyMaterial) -> None:
    fresh = at(61, first)
    assert fresh.certificate.not_valid_after_utc > NOW + 150 * DAY
    assert fresh.authorities == first.authorities


def test_a_due_certificate_of_a_new_authority_is_renewed_at_once(first: KeyMaterial) -> None:
    """Clients trust that authority already: the certificate at hand is its own."""
    brief = Lifetimes(server=timedelta(seconds=3))
    due = renewed(first, ("other.svc",), NOW, brief, published=True)
    fresh = renewed(due, ("other.svc",), NOW + timedelta(seconds=1), brief, published=True)
    assert fresh.certificate != due.certificate
    assert fresh.authorities == first.authorities


def test_a_certificate_that_expired_during_an_outage_is_renewed(first: KeyMaterial) -> None:
    fresh = at(100, first, published=False)
    assert fresh.certificate.not_valid_after_utc > NOW + 180 * DAY
    assert fresh.authorities == first.authorities


def test_a_new_authority_is_trusted_for_a_while_before_it_signs(first: KeyMaterial) -> None:
    current = at(200, first)
    joined = at(244, current)
    assert len(joined.authorities) == 2
    assert joined.certificate == current.certificate
    assert at(244, joined) is joined, "clients may not have heard of it"
    later = 244 + 1 / 24
    assert at(later, joined, published=False) is joined, "clients were not told yet"
    switched = at(later, joined)
    switched.certificate.verify_directly_issued_by(joined.authorities[0])
    assert switched.authorities == joined.authorities, "the old one is trusted while calls under way need it"


def test_an_authority_leaves_the_bundle_when_it_expires(first: KeyMaterial) -> None:
    joined = at(244, at(200, first))
    assert at(366, joined).authorities == joined.authorities[:1]


def test_when_everything_expired_everything_is_new_at_once(first: KeyMaterial) -> None:
    fresh = at(1000, first, published=False)
    assert len(fresh.authorities) == 1
    fresh.certificate.verify_directly_issued_by(fresh.authorities[0])


def test_another_name_needs_another_certificate(first: KeyMaterial) -> None:
    fresh = renewed(first, (*HOSTS, "other.svc"), NOW, LIFETIMES, published=False)
    assert fresh.certificate != first.certificate
    assert fresh.authorities == first.authorities
    assert renewed(fresh, HOSTS, NOW, LIFETIMES, published=True) is fresh


@pytest.mark.parametrize("member", ["tls.key", "ca.key"])
def test_keys_that_belong_to_something_else_are_replaced(first: KeyMaterial, member: str) -> None:
    stolen = KeyMaterial.from_secret({**first.as_secret(), member: at(0, None).as_secret()[member]})
    assert stolen is not None
    fresh = at(1, at(1, stolen))
    fresh.certificate.verify_directly_issued_by(fresh.authorities[0] if member == "tls.key" else fresh.authorities[-1])
    assert fresh.authority_key.public_key() == fresh.authorities[0].public_key()
    assert fresh.key.public_key() == fresh.certificate.public_key()


def test_a_certificate_that_is_no_certificate_counts_as_empty(first: KeyMaterial) -> None:
    assert KeyMaterial.from_secret({**first.as_secret(), "tls.crt": b64encode(b"x").decode()}) is None
