"""HTTPS for clients, with a certificate that is replaced while the router serves."""

import ssl
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from pdinference.serving.authority import KeyMaterial, Lifetimes, renewed
from pdinference.serving.tls_context import CertificateError
from tests.router.engines import fleet
from tests.waiting import until


def mounted(folder: Path) -> KeyMaterial:
    """A new certificate in the files of a Secret."""
    material = renewed(None, ("127.0.0.1",), datetime.now(UTC), Lifetimes(), published=False)
    secret = material.as_secret()
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(b64decode(secret[name]))
    return material


async def test_clients_trust_the_mounted_certificate_and_its_successor(tmp_path: Path) -> None:
    first = mounted(tmp_path)
    async with fleet("p", "d", tls_folder=tmp_path) as world:
        assert world.serving is not None
        url = f"https://127.0.0.1:{world.serving.port}/v1/models"
        trust = ssl.create_default_context(cadata=first.bundle.decode())
        async with world.client.get(url, ssl=trust) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await world.client.get(url.replace("https", "http"))
        second = mounted(tmp_path)

        async def replaced() -> bool:
            trust = ssl.create_default_context(cadata=second.bundle.decode())
            try:
                async with aiohttp.ClientSession() as client, client.get(url, ssl=trust) as answer:
                    return answer.status == 200
            except aiohttp.ClientConnectorCertificateError:
                return False

        await until(replaced, "the new certificate is served")
        (tmp_path / "tls.key").write_text("no key")
        (tmp_path / "tls.crt").unlink()
        assert await replaced(), "the last good one stays"


async def test_a_router_without_its_certificate_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="no certificate in"):
        async with fleet("p", "d", tls_folder=tmp_path):
            pass
