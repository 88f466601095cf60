"""Renewed certificates, as seen by a client."""

import ssl
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from pdinference.cluster.errors import ApiError
from pdinference.serving import (
    Certificates,
    MountedCertificates,
    SelfManagedCertificates,
    TLSServer,
    api_service,
    webhook_configurations,
)
from pdinference.serving.authority import KeyMaterial, Lifetimes, renewed
from pdinference.serving.tls_context import CertificateError
from tests.cluster.fake_api import FakeApi

SECRET = "/api/v1/namespaces/ours/secrets/tls"  # noqa: S105 - a path
RULES = {"resources": ["pdinferences"]}
BOTH = webhook_configurations("ours", RULES)
HOOKS, EARLY_HOOKS = BOTH
SERVICE = api_service("v1beta1.external.metrics.k8s.io", ("ours", "tls"))
HOST = "localhost"


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}})
    for path, kind in ((HOOKS.path, "Validating"), (EARLY_HOOKS.path, "Mutating")):
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "ours"},
            "webhooks": [{"name": "a", "clientConfig": {}}, {"name": "b", "clientConfig": {"caBundle": "b2xk"}}],
        }
        api.put(path, configuration)
    return api


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def certificates(api: FakeApi, clock: Clock) -> SelfManagedCertificates:
    return SelfManagedCertificates(api, ("ours", "tls"), hosts=(HOST,), holders=BOTH, now=clock)


def bundles(api: FakeApi) -> list[bytes]:
    hooks = (hook for holder in BOTH for hook in api.objects[holder.path]["webhooks"])
    return [b64decode(hook["clientConfig"]["caBundle"]) for hook in hooks]


@pytest.fixture
def called() -> Any:
    """Calls a server with this certificate, trusting this bundle."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def call(ours: Certificates, bundle: bytes) -> str:
        trust = ssl.create_default_context(cadata=bundle.decode())
        async with (
            TLSServer([web.get("/", answer)], ours.context).serve("127.0.0.1", 0, drain=0) as port,
            aiohttp.ClientSession() as session,
            session.get(f"https://{HOST}:{port}/", ssl=trust) as response,
        ):
            return await response.text()

    return call


async def test_an_empty_secret_gets_a_certificate_that_the_bundle_trusts(
    api: FakeApi, clock: Clock, called: Any
) -> None:
    ours = certificates(api, clock)
    assert not ours.ready
    await ours.refresh()
    assert ours.ready
    first, *others = bundles(api)
    assert others == [first] * 3
    for holder in BOTH:
        assert [hook["rules"] for hook in api.objects[holder.path]["webhooks"]] == [[RULES], [RULES]]
    assert await called(ours, first) == "hello"


async def test_a_second_look_writes_nothing(api: FakeApi, clock: Clock) -> None:
    ours = certificates(api, clock)
    await ours.refresh()
    before = api.requests.copy()
    await ours.refresh()
    assert set(api.requests - before) <= {"get"}


async def test_replicas_share_one_certificate(api: FakeApi, clock: Clock, called: Any) -> None:
    first, second = certificates(api, clock), certificates(api, clock)
    api.fail("replace", SECRET, ApiError(409, "Conflict", "somebody was quicker"))
    await first.refresh()
    await second.refresh()
    assert api.requests["replace"] == 2  # of the first, which met a conflict; none of the second
    assert await called(second, bundles(api)[0]) == "hello"


async def test_rotation_needs_no_restart(api: FakeApi, clock: Clock, called: Any) -> None:
    clock.now -= timedelta(days=100)
    ours = certificates(api, clock)
    await ours.refresh()
    with pytest.raises(aiohttp.ClientConnectorCertificateError):  # it expired: the client's clock is the real one
        await called(ours, bundles(api)[0])
    clock.now += timedelta(days=100)
    await ours.refresh()
    assert await called(ours, bundles(api)[0]) == "hello"


async def test_a_due_certificate_is_served_while_its_successor_cannot_be_stored(
    api: FakeApi, clock: Clock, called: Any
) -> None:
    clock.now -= timedelta(days=80)
    await certificates(api, clock).refresh()
    clock.now += timedelta(days=80)
    api.fail("replace", SECRET, ApiError(403, "Forbidden", "no"))
    ours = certificates(api, clock)
    with pytest.raises(ApiError, match="no"):
        await ours.refresh()
    assert ours.ready
    assert await called(ours, bundles(api)[0]) == "hello"


async def test_an_expired_certificate_that_cannot_be_replaced_is_not_served(api: FakeApi, clock: Clock) -> None:
    clock.now -= timedelta(days=100)
    await certificates(api, clock).refresh()
    clock.now += timedelta(days=100)
    api.fail("replace", SECRET, ApiError(403, "Forbidden", "no"))
    ours = certificates(api, clock)
    with pytest.raises(ApiError, match="no"):
        await ours.refresh()
    assert not ours.ready


async def test_clients_with_an_old_bundle_are_served_until_they_have_the_new_one(
    api: FakeApi, clock: Clock, called: Any
) -> None:
    clock.now -= timedelta(days=260)
    ours = certificates(api, clock)
    await ours.refresh()
    old = bundles(api)[0]
    clock.now += timedelta(days=200)
    await ours.refresh()
    clock.now += timedelta(days=60)
    await ours.refresh()
    both = bundles(api)[0]
    assert both != old
    assert [await called(ours, bundle) for bundle in (old, both)] == ["hello", "hello"]
    clock.now += timedelta(minutes=2)
    await ours.refresh()
    assert await called(ours, both) == "hello"
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await called(ours, old)


async def test_no_authority_signs_before_its_bundle_is_published(api: FakeApi, clock: Clock) -> None:
    lifetimes = Lifetimes(server=timedelta(days=900))
    ours = SelfManagedCertificates(
        api, ("ours", "tls"), hosts=(HOST,), holders=(HOOKS,), lifetimes=lifetimes, now=clock
    )
    await ours.refresh()
    material = KeyMaterial.from_secret(api.objects[SECRET]["data"])
    clock.now += timedelta(days=250)
    api.fail("apply", HOOKS.path, ApiError(0, "Unreachable", "away"), ApiError(0, "Unreachable", "away"))
    with pytest.raises(ApiError):
        await ours.refresh()
    clock.now += timedelta(hours=1)
    with pytest.raises(ApiError):
        await ours.refresh()
    held = KeyMaterial.from_secret(api.objects[SECRET]["data"])
    assert held is not None
    assert material is not None
    assert len(held.authorities) == 2
    held.certificate.verify_directly_issued_by(material.authorities[0])


async def test_a_removed_bundle_is_restored(api: FakeApi, clock: Clock) -> None:
    ours = certificates(api, clock)
    await ours.refresh()
    before = bundles(api)
    live = api.objects[HOOKS.path]
    api.put(HOOKS.path, {**live, "webhooks": [{"name": "a", "clientConfig": {}}, {"name": "b", "clientConfig": {}}]})
    await ours.refresh()
    assert bundles(api) == before


async def test_what_is_not_installed_is_passed_over(api: FakeApi, clock: Clock) -> None:
    del api.objects[HOOKS.path]
    ours = SelfManagedCertificates(api, ("ours", "tls"), hosts=(HOST,), holders=(HOOKS, SERVICE), now=clock)
    spec = {"service": {"namespace": "ours", "name": "tls"}}
    identity = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "x"}}
    api.put(SERVICE.path, {**identity, "spec": spec})
    await ours.refresh()
    assert ours.ready
    assert api.objects[SERVICE.path]["spec"]["caBundle"]


async def test_a_secret_that_does_not_exist_is_named(api: FakeApi, clock: Clock) -> None:
    del api.objects[SECRET]
    with pytest.raises(CertificateError, match=r"secrets/tls does not exist\. .*helm upgrade"):
        await certificates(api, clock).refresh()


async def test_mounted_files_are_loaded_and_loaded_again(api: FakeApi, tmp_path: Path, called: Any) -> None:
    ours = MountedCertificates(api, tmp_path, holders=(HOOKS,))
    with pytest.raises(CertificateError, match="no certificate in"):
        await ours.refresh()
    for _ in range(2):
        material = renewed(None, (HOST,), datetime.now(UTC), Lifetimes(), published=False)
        data = material.as_secret()
        for name in ("tls.crt", "tls.key"):
            (tmp_path / name).write_bytes(b64decode(data[name]))
        await ours.refresh()
        assert await called(ours, material.bundle) == "hello"
    assert [hook["rules"] for hook in api.objects[HOOKS.path]["webhooks"]] == [[RULES], [RULES]]
    assert not any("clientConfig" in hook for hook in api.objects[HOOKS.path]["webhooks"]), "cert-manager's"


async def test_mounted_files_that_do_not_go_together_change_nothing(api: FakeApi, tmp_path: Path, called: Any) -> None:
    ours = MountedCertificates(api, tmp_path, holders=(HOOKS,))
    material, other = (renewed(None, (HOST,), datetime.now(UTC), Lifetimes(), published=False) for _ in range(2))
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(b64decode(material.as_secret()[name]))
    await ours.refresh()
    (tmp_path / "tls.key").write_bytes(b64decode(other.as_secret()["tls.key"]))
    with pytest.raises(CertificateError, match="do not match"):
        await ours.refresh()
    assert await called(ours, material.bundle) == "hello"
