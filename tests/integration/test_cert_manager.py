"""The certificate by cert-manager itself: issued, mounted, its CA injected, and renewed without a failed call."""

import asyncio
import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from e2e.cluster.build import TOOLS, binary
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from tests.charts.helm import CERT_MANAGER, of_kind, rendered
from tests.integration.operators import Operators
from tests.integration.proxy import Proxy
from tests.integration.webhook import Webhook
from tests.integration.world import World

MODULE = "github.com/cert-manager/cert-manager"
MANUALLY = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by the test"}


@pytest.fixture
async def cert_manager(world: World, tmp_path: Path) -> AsyncIterator[None]:
    """cert-manager's definitions and controllers."""
    for definition in await asyncio.to_thread(definitions):
        await world.install_crd(definition)
    with (tmp_path / "cert-manager.log").open("wb") as log:
        line = (str(binary("cert-manager")), str(world.cluster.kubeconfig))
        process = await asyncio.create_subprocess_exec(*line, stdout=log, stderr=log)
    yield
    process.terminate()
    await asyncio.wait_for(process.wait(), timeout=120)


def definitions() -> list[Json]:
    """cert-manager's own, from its module."""
    line = ["go", "mod", "download", "-json", MODULE]
    found = subprocess.run(line, cwd=TOOLS["cert-manager"].source, check=True, capture_output=True)
    folder = Path(json.loads(found.stdout)["Dir"]) / "deploy" / "crds"
    return [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("cert-manager.io_*.yaml"))]


class Mounted(Webhook):
    """The webhook as the chart leaves it to cert-manager; a folder is what the kubelet mounts."""

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(world, CERT_MANAGER)
        self.folder = folder
        self.name = ""

    @property
    def flags(self) -> list[str]:
        mounted = [f"--tls-folder={self.folder}"]
        return mounted + [flag for flag in super().flags if not flag.startswith(("--tls-secret", "--tls-host"))]

    async def install(self, data: dict[str, str] | None = None) -> None:
        """All that the chart has, with an address in the place of the Service's name."""
        for kind in ("Issuer", "Certificate"):
            for item in of_kind(rendered(self.values), kind):
                if "dnsNames" in item["spec"]:
                    self.name = item["metadata"]["name"]
                    del item["spec"]["dnsNames"]
                    item["spec"]["ipAddresses"] = [self.host]
                item["metadata"]["namespace"] = self.world.namespace
                await self.world.api.create(self.collection(f"{kind.lower()}s"), item)
        await self.configure()

    def collection(self, plural: str) -> str:
        return f"/apis/cert-manager.io/v1/namespaces/{self.world.namespace}/{plural}"

    async def secret(self) -> dict[str, bytes]:
        """What cert-manager issued; nothing yet is an empty one."""
        with suppress(ApiError):
            found = await self.world.api.get(f"/api/v1/namespaces/{self.world.namespace}/secrets/{self.name}")
            return {key: b64decode(value) for key, value in found["data"].items()}
        return {}

    async def keep_mounted(self) -> None:
        """Play the kubelet."""
        while True:
            for key, value in (await self.secret()).items():
                (self.folder / key).write_bytes(value)
            await asyncio.sleep(0.5)

    async def renew(self) -> None:
        """What `cmctl renew` does."""
        path = f"{self.collection('certificates')}/{self.name}"
        ready = (await self.world.api.get(path))["status"]["conditions"]
        await self.world.api.merge(f"{path}/status", {"status": {"conditions": [*ready, MANUALLY]}})


async def test_cert_manager_issues_injects_and_renews_without_a_failed_call(
    world: World, cert_manager: None, operators: Operators, tmp_path: Path
) -> None:
    webhook = Mounted(world, tmp_path)
    await webhook.install()
    kubelet = asyncio.create_task(webhook.keep_mounted())
    async with Proxy(webhook.host, webhook.port, listen=webhook.host) as proxy:
        await webhook.lead_to(proxy.port)
        try:
            await operators.start(*webhook.flags)
            await webhook.insists()
            old = await webhook.secret()
            for path in (webhook.path, webhook.early_path):
                bundle = (await webhook.configuration(path))["clientConfig"]["caBundle"]
                assert bundle == b64encode(old["ca.crt"]).decode()
            seen = await webhook.certificates_seen(proxy, since=webhook.renew())
            new = await webhook.secret()
            assert new["ca.crt"] == old["ca.crt"]
            assert seen == [x509.load_pem_x509_certificate(secret["tls.crt"]) for secret in (old, new)]
            await webhook.insists()
        finally:
            kubelet.cancel()
            await webhook.remove()
