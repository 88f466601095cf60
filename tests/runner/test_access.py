"""Files with the API key and the certificate."""

from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pdinference.runner.access import Access, AccessError
from pdinference.serving.authority import Lifetimes, renewed

KEY, OTHER = "sk-0123456789abcdef", "sk-fedcba9876543210"


@pytest.mark.parametrize(
    "text", [KEY, f"{KEY}\n", f"\n  {KEY} \r\n{OTHER}\n", f"short\n{KEY}", f"{KEY}\n{'x' * 20_000}"]
)
def test_the_key_is_the_first_line_that_is_long_enough(tmp_path: Path, text: str) -> None:
    (tmp_path / "batch").write_text(text)
    access = Access(tmp_path / "batch")
    assert access.headers == {"Authorization": f"Bearer {KEY}"}
    assert access.trust is True


@pytest.mark.parametrize(
    "text", [None, b"", b"x" * 15, b"a key with short words", "schlüssel-0123456789".encode(), b"\0" * 16]
)
def test_a_file_without_a_key_is_reported_with_what_to_do(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / "batch"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(AccessError) as error:
        Access(file)
    assert f"There is no API key in {file}: " in str(error.value)
    assert "spec.router.apiKeys of the PDInference: add the key batch to it" in str(error.value)


@pytest.mark.parametrize("text", [None, "", "no PEM", "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_is_reported_with_what_to_do(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "tls.crt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(AccessError) as error:
        Access(certificate_file=file)
    assert f"There is no certificate in {file}: " in str(error.value)
    assert "spec.router.tls of the PDInference" in str(error.value)


def test_what_is_gone_stays_in_use_until_there_is_a_new_one(tmp_path: Path) -> None:
    key, certificate = tmp_path / "batch", tmp_path / "tls.crt"
    key.write_text(KEY)
    certificate.write_bytes(_certificate())
    access = Access(key, certificate)
    headers, trust = access.headers, access.trust
    access.reload()
    assert access.trust is trust, "connections stay in use"
    key.unlink()
    certificate.write_text("")
    access.reload()
    assert (access.headers, access.trust) == (headers, trust)
    key.write_text(OTHER)
    certificate.write_bytes(_certificate())
    access.reload()
    assert access.headers == {"Authorization": f"Bearer {OTHER}"}
    assert access.trust is not trust


def _certificate() -> bytes:
    return b64decode(renewed(None, ("a",), datetime.now(UTC), Lifetimes(), published=False).as_secret()["tls.crt"])
