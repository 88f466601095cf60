"""Client certificates of the webhook, with real connections."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pdinference.cluster.errors import ApiError
from pdinference.serving import Callers, ClientAuthorities, SelfManagedCertificates, TLSServer, mounted, published
from pdinference.serving.callers import Source
from pdinference.serving.request_header import PATH
from tests.cluster.fake_api import FakeApi

SECRET = "/api/v1/namespaces/ours/secrets/tls"  # noqa: S105 - a path
HOST = "localhost"
API_SERVER = "kube-apiserver-webhooks"
TOO_LARGE = {"padding": "x" * 2**20}


@dataclass(frozen=True)
class Authority:
    """A CA that issues client certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def named(cls, name: str) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key, _signed(_named(name), key, _named(name), key, ca=True))

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def client(self, name: str, folder: Path) -> Path:
        """A file with a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(_named(name), key, self.certificate.subject, self.key, ca=False)
        file = folder / f"{certificate.serial_number}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return file


def _signed(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, signer: ec.EllipticCurvePrivateKey, *, ca: bool
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Server:
    """The webhook's route, guarded, and one that is not."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.api.put(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}})
        self.certificates = SelfManagedCertificates(self.api, ("ours", "tls"), hosts=(HOST,), holders=())
        self.authorities = ClientAuthorities(self.certificates.context)
        self.read = 0

    def publish(self, authority: Authority, *names: str) -> None:
        data = {
            "requestheader-client-ca-file": authority.pem,
            "requestheader-allowed-names": json.dumps(names),
        }
        self.api.put(PATH, {"metadata": {"name": "extension-apiserver-authentication"}, "data": data})

    @asynccontextmanager
    async def serving(self, callers: Callers) -> AsyncIterator["Server"]:
        async def validate(request: web.Request) -> web.Response:
            self.read += len(await request.read())
            return web.Response(text="reviewed")

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(text="open")

        await self.certificates.refresh()
        routes = [*callers.guarded([web.post("/validate", validate)]), web.get("/metrics", metrics)]
        async with TLSServer(routes, self.certificates.context).serve("127.0.0.1", 0, drain=0) as self.port:
            yield self

    async def call(self, client: Path | None = None) -> tuple[int, str]:
        """The response to a client, on a new connection."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        if client is not None:
            trust.load_cert_chain(client)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"https://{HOST}:{self.port}/validate", ssl=trust, json=TOO_LARGE) as response,
        ):
            return response.status, await response.text()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def authority() -> Authority:
    return Authority.named("webhook-ca")


@pytest.fixture(params=["mounted", "published"])
def source(request: pytest.FixtureRequest, server: Server, authority: Authority, tmp_path: Path) -> Source:
    """Either way to know the CA and the name."""
    if request.param == "published":
        server.publish(authority, API_SERVER)
        return published(server.api)
    file = tmp_path / "ca.crt"
    file.write_text(authority.pem)
    return mounted(file, frozenset({API_SERVER}))


async def test_only_the_api_server_is_accepted(
    server: Server, authority: Authority, source: Source, tmp_path: Path
) -> None:
    callers = Callers(server.authorities, source)
    await callers.refresh()
    async with server.serving(callers):
        assert await server.call(authority.client(API_SERVER, tmp_path)) == (200, "reviewed")
        server.read = 0
        status, text = await server.call()
        refusal = json.loads(text)
        assert (status, refusal["kind"], refusal["reason"]) == (403, "Status", "Forbidden")
        assert "webhook.clientCertificate" in refusal["message"]
        assert (await server.call(authority.client("some-pod", tmp_path)))[0] == 403
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await server.call(Authority.named("stranger").client(API_SERVER, tmp_path))
        assert server.read == 0, "of others not even the body is read"


async def test_before_a_ca_is_known_all_callers_are_refused(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    callers = Callers(server.authorities, published(server.api))
    with pytest.raises(ApiError):
        await callers.refresh()
    assert not callers.ready
    async with server.serving(callers):
        assert (await server.call())[0] == 403
        server.publish(authority, API_SERVER)
        await callers.refresh()
        assert callers.ready
        assert (await server.call(authority.client(API_SERVER, tmp_path)))[0] == 200


async def test_the_certificate_of_another_client_of_the_server_is_not_enough(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    """The front proxy asks for metrics on the same server; its CA may issue a certificate of the same name."""
    front_proxy = Authority.named("front-proxy-ca")
    server.authorities.trust(front_proxy.pem)
    (tmp_path / "ca.crt").write_text(authority.pem)
    callers = Callers(server.authorities, mounted(tmp_path / "ca.crt", frozenset({API_SERVER})))
    await callers.refresh()
    async with server.serving(callers):
        assert (await server.call(front_proxy.client(API_SERVER, tmp_path)))[0] == 403
        assert (await server.call(authority.client(API_SERVER, tmp_path)))[0] == 200


async def test_a_ca_that_was_replaced_is_good_for_nothing(server: Server, authority: Authority, tmp_path: Path) -> None:
    file, successor = tmp_path / "ca.crt", Authority.named("next-ca")
    file.write_text(authority.pem)
    callers = Callers(server.authorities, mounted(file, frozenset({API_SERVER})))
    await callers.refresh()
    file.write_text(successor.pem)
    await callers.refresh()
    async with server.serving(callers):
        assert (await server.call(authority.client(API_SERVER, tmp_path)))[0] == 403
        assert (await server.call(successor.client(API_SERVER, tmp_path)))[0] == 200


@pytest.mark.parametrize("broken", ["", "no certificate"])
async def test_a_source_that_breaks_changes_nothing(
    server: Server, authority: Authority, tmp_path: Path, broken: str
) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(authority.pem)
    callers = Callers(server.authorities, mounted(file, frozenset()))
    await callers.refresh()
    file.write_text(broken)
    keeping = asyncio.create_task(callers.keep(0.01))
    async with server.serving(callers):
        assert (await server.call(authority.client("any-name", tmp_path)))[0] == 200
    assert not keeping.done(), "it is tried again"
    keeping.cancel()
