"""The runner in front of the real router, with API keys and TLS."""

import asyncio
import json
import shutil
import ssl
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pdinference.router.keys import KeyLimits, Keys
from pdinference.runner.access import Access
from pdinference.runner.run import Exit, Task, run
from pdinference.runner.sending import Service
from pdinference.serving.authority import KeyMaterial, Lifetimes, renewed
from tests.router.engines import Fleet, fleet
from tests.runner.service import line, read_lines, write_lines
from tests.waiting import until

COUNT = 12
KEY, NEW_KEY = "sk-0123456789abcdef", "sk-fedcba9876543210"
HOSTS = ("models.example.com",)
"""Names in the certificate. The runner does not use them."""


class Secrets:
    """The Secrets as the kubelets of the router and of the runner mount them."""

    def __init__(self, folder: Path) -> None:
        self.router, self.runner = folder / "router", folder / "runner"
        for one in (self.router, self.runner):
            (one / "keys").mkdir(parents=True)
            (one / "tls").mkdir()
        self.key_file, self.certificate_file = self.runner / "keys" / "batch", self.runner / "tls" / "tls.crt"
        self.material = self.renew(None)
        self.rotate(KEY)
        self.arrive()

    def renew(self, current: KeyMaterial | None, hosts: tuple[str, ...] = HOSTS) -> KeyMaterial:
        """A certificate for the router, with that of its issuer."""
        self.material = renewed(current, hosts, datetime.now(UTC), Lifetimes(), published=False)
        secret = self.material.as_secret()
        (self.router / "tls" / "tls.crt").write_bytes(b64decode(secret["tls.crt"]) + self.material.bundle)
        (self.router / "tls" / "tls.key").write_bytes(b64decode(secret["tls.key"]))
        return self.material

    def rotate(self, key: str) -> None:
        """A key for the router."""
        (self.router / "keys" / "batch").write_text(f"{key}\n")

    def arrive(self) -> None:
        """The runner's files become those of the router."""
        shutil.copy(self.router / "keys" / "batch", self.key_file)
        shutil.copy(self.router / "tls" / "tls.crt", self.certificate_file)

    def keys(self, limits: KeyLimits | None = None) -> Keys:
        return Keys(self.router / "keys", {"batch": limits} if limits else {})


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


class Batch:
    """A batch with one request after the other."""

    def __init__(self, world: Fleet, secrets: Secrets, folder: Path) -> None:
        assert world.serving is not None
        self._url = f"https://127.0.0.1:{world.serving.port}"
        self._secrets = secrets
        self._input = write_lines(folder / "input.jsonl", [line(number) for number in range(COUNT)])
        self._report = folder / "report"
        self.output = folder / "output"

    async def run(self, *, patience_s: float = 60, concurrency: int = 1, **files: Any) -> tuple[Exit, str]:
        """Exit status and last words."""
        service = Service(self._url, None, None, 0, timeout_s=60, patience_s=patience_s, first_pause_s=0.01)
        files = {"key_file": self._secrets.key_file, "certificate_file": self._secrets.certificate_file, **files}
        task = Task(self._input, self.output, service, concurrency, metrics_port=0, report=self._report, **files)
        status = await run(task)
        return status, json.loads(self._report.read_text())["message"]

    @property
    def answered(self) -> int:
        assert not (self.output / "errors.jsonl").exists() or not read_lines(self.output / "errors.jsonl")
        return len(read_lines(self.output / "output.jsonl"))


def on_reload(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], None]) -> None:
    """Act before the runner reads its files for this time."""
    reload = Access.reload
    count = 0

    def counted(access: Access) -> None:
        nonlocal count
        count += 1
        if count == number:
            act()
        reload(access)

    monkeypatch.setattr(Access, "reload", counted)


async def test_requests_have_the_key_and_go_to_the_certificate_of_the_secret(secrets: Secrets, tmp_path: Path) -> None:
    async with fleet("p", "d", keys=secrets.keys(), tls_folder=secrets.router / "tls") as world:
        batch = Batch(world, secrets, tmp_path)
        assert await batch.run() == (Exit.DONE, f"{COUNT} of {COUNT} requests answered.")
        assert batch.answered == COUNT
        async with world.client.get(f"{world.state}/metrics") as answer:
            assert 'client="batch",outcome="answered"' in await answer.text()


async def test_a_renewed_certificate_and_a_new_key_fail_no_request(
    secrets: Secrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet("p", "d", keys=secrets.keys(), tls_folder=secrets.router / "tls") as world:
        assert world.serving is not None
        world.serving.leave()  # each request opens a connection
        first = secrets.certificate_file.read_bytes()
        answer = world["d"].answer

        async def renew_then_answer(request: Any) -> Any:
            monkeypatch.setattr(world["d"], "answer", answer)
            secrets.renew(secrets.material, ("other.example.com",))
            secrets.rotate(NEW_KEY)
            await until(lambda: served_another(world, first), "the router has the new certificate")
            return await answer(request)

        monkeypatch.setattr(world["d"], "answer", renew_then_answer)
        on_reload(monkeypatch, 3, secrets.arrive)
        batch = Batch(world, secrets, tmp_path)
        assert (await batch.run())[0] is Exit.DONE
        assert batch.answered == COUNT
        assert secrets.key_file.read_text() == f"{NEW_KEY}\n"


async def test_a_certificate_that_is_renewed_while_the_service_is_away_fails_no_request(
    secrets: Secrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = {"rules": {"max_wait": 0.1}, "keys": secrets.keys(), "tls_folder": secrets.router / "tls"}
    async with fleet("p", "d", **away) as world:
        assert world.serving is not None
        world.serving.leave()
        first = secrets.certificate_file.read_bytes()
        world.observe("d")
        running = asyncio.create_task(Batch(world, secrets, tmp_path).run())

        async def failed() -> bool:
            return await world.metric("pdinference_router_requests_total") > 0

        await until(failed, "a request has failed")
        secrets.renew(secrets.material, ("other.example.com",))
        await until(lambda: served_another(world, first), "the router has the new certificate")
        on_reload(monkeypatch, 1, secrets.arrive)
        world.observe()
        assert await running == (Exit.DONE, f"{COUNT} of {COUNT} requests answered.")


async def served_another(world: Fleet, chain: bytes) -> bool:
    """Whether the router has another certificate than the first one of this chain."""
    assert world.serving is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", world.serving.port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(found).encode() not in chain


async def test_another_certificate_of_the_same_issuer_gets_nothing(secrets: Secrets, tmp_path: Path) -> None:
    """A public issuer certifies others, too."""
    secrets.renew(secrets.material, ("other.example.com",))
    async with fleet("p", "d", keys=secrets.keys(), tls_folder=secrets.router / "tls") as world:
        batch = Batch(world, secrets, tmp_path)
        status, message = await batch.run(patience_s=0.1)
        assert status is Exit.TRY_AGAIN
        assert "has no certificate that this runner trusts" in message
        assert "CERTIFICATE_VERIFY_FAILED" in message
        assert await world.metric("pdinference_router_requests_total") == 0


async def test_a_key_that_stays_rejected_ends_the_batch_and_fails_no_line(secrets: Secrets, tmp_path: Path) -> None:
    secrets.rotate(NEW_KEY)
    async with fleet("p", "d", keys=secrets.keys(), tls_folder=secrets.router / "tls") as world:
        batch = Batch(world, secrets, tmp_path)
        status, message = await batch.run(patience_s=0.1)
        assert status is Exit.UNFIT
        assert "rejected the API key for 0.1 s. Check whether" in message
        assert batch.answered == 0
        assert await world.metric("pdinference_router_requests_total") > 1


async def test_a_batch_from_before_the_keys_ends(secrets: Secrets, tmp_path: Path) -> None:
    async with fleet("p", "d", keys=secrets.keys(), tls_folder=secrets.router / "tls") as world:
        batch = Batch(world, secrets, tmp_path)
        status, message = await batch.run(key_file=None)
        assert status is Exit.UNFIT
        assert "requires an API key, and this runner has none. If spec.router.apiKeys was added" in message
        assert batch.answered == 0
        assert await world.metric("pdinference_router_requests_total") == 1


async def test_a_missing_key_is_reported_before_anything_is_sent(secrets: Secrets, tmp_path: Path) -> None:
    secrets.key_file.unlink()
    async with fleet("p", "d", keys=secrets.keys(), tls_folder=secrets.router / "tls") as world:
        batch = Batch(world, secrets, tmp_path)
        status, message = await batch.run()
        assert status is Exit.TRY_AGAIN
        assert "add the key batch to it, or name another key of it in spec.apiKeyName of the PDBatch" in message
        assert await world.metric("pdinference_router_requests_total") == 0


async def test_limits_of_the_key_delay_requests_and_fail_none(secrets: Secrets, tmp_path: Path) -> None:
    keys = secrets.keys(KeyLimits(concurrent_requests=1))
    async with fleet("p", "d", keys=keys, tls_folder=secrets.router / "tls") as world:
        world["d"].go_on.clear()

        async def limited() -> bool:
            return await world.metric('pdinference_router_requests_total{client="batch",outcome="limited"') > 0

        batch = Batch(world, secrets, tmp_path)
        running = asyncio.create_task(batch.run(concurrency=4))
        await until(limited, "the router has rejected a request")
        world["d"].go_on.set()
        assert (await running)[0] is Exit.DONE
        assert batch.answered == COUNT
