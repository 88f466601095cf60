"""The webhook of operators on the host: what the chart installs, with an address in the place of a Service."""

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Awaitable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from cryptography import x509

from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.serving.authority import KeyMaterial
from tests.charts.helm import NAMESPACE, Values, only, rendered
from tests.integration.proxy import Proxy
from tests.integration.world import World
from tests.ports import free_port
from tests.waiting import until

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
SECRET = "tls"  # noqa: S105 - its name
_CALLS_AFTERWARDS = 5


class Webhook:
    """The two configurations for the test's namespace, and the Secret."""

    def __init__(self, world: World, values: Values | None = None) -> None:
        self.world = world
        self.values = values
        self.host = world.cluster.host_address
        self.port = free_port()
        self.path, self.early_path = (
            f"{CONFIGURATIONS.format(kind)}/{world.namespace}" for kind in ("validating", "mutating")
        )
        self.secret_path = f"/api/v1/namespaces/{world.namespace}/secrets/{SECRET}"

    @property
    def flags(self) -> list[str]:
        """For `pdinference run`."""
        return [
            f"--lease-namespace={self.world.namespace}",
            f"--tls-secret={SECRET}",
            f"--tls-host={self.host}",
            f"--tls-port={self.port}",
            f"--webhook-configuration={self.world.namespace}",
            "--tls-check-seconds=0.5",
        ]

    async def install(self, data: dict[str, str] | None = None) -> None:
        """Make all, as the chart does."""
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data or {}}
        await self.world.api.create(self.secret_path.rsplit("/", 1)[0], secret)
        await self.configure()

    async def configure(self) -> None:
        """Make the configurations."""
        for kind in ("Validating", "Mutating"):
            configuration = only(rendered(self.values), f"{kind}WebhookConfiguration")
            annotations = configuration["metadata"].get("annotations", {})
            own = {key: value.replace(NAMESPACE, self.world.namespace) for key, value in annotations.items()}
            configuration["metadata"] = {"name": self.world.namespace, "annotations": own}
            (webhook,) = configuration["webhooks"]
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://{self.host}:{self.port}{path}"}
            webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": self.world.namespace}}
            await self.world.api.create(CONFIGURATIONS.format(kind.lower()), configuration)

    async def remove(self) -> None:
        for path in (self.path, self.early_path):
            with suppress(ApiError):
                found = await self.world.api.get(path)
                await self.world.api.delete(path, uid=found["metadata"]["uid"])

    async def lead_to(self, port: int) -> None:
        """Send the API server to another operator, as the Service's endpoints do in a cluster."""
        for path in (self.path, self.early_path):

            async def written(path: str = path) -> bool:
                configuration = await self.world.api.get(path)
                client = configuration["webhooks"][0]["clientConfig"]
                client["url"] = client["url"].replace(f":{self.port}/", f":{port}/")
                try:
                    await self.world.api.replace(path, configuration)
                except ApiError as error:
                    if error.status != HTTPStatus.CONFLICT:  # cert-manager's CA injector writes, too
                        raise
                    return False
                return True

            await until(written, f"{path} leads to port {port}")

    async def configuration(self, path: str = "") -> Json:
        (webhook,) = (await self.world.api.get(path or self.path))["webhooks"]
        found: Json = webhook
        return found

    async def material(self) -> KeyMaterial | None:
        """What the Secret holds."""
        return KeyMaterial.from_secret((await self.world.api.get(self.secret_path)).get("data"))

    async def overwrite(self, material: KeyMaterial) -> None:
        """Put something else into the Secret."""
        secret = await self.world.api.get(self.secret_path)
        await self.world.api.replace(self.secret_path, {**secret, "data": material.as_secret()})

    async def served(self) -> x509.Certificate:
        """The certificate that a new connection gets."""
        pem = await asyncio.to_thread(ssl.get_server_certificate, (self.host, self.port), timeout=30)
        return x509.load_pem_x509_certificate(pem.encode())

    async def serves(self, certificate: x509.Certificate) -> bool:
        """Whether new connections get this certificate."""
        return await self.served() == certificate

    async def certificates_seen(self, proxy: Proxy, *, since: Awaitable[object]) -> list[x509.Certificate]:
        """Let the API server call over a new connection each time, until another certificate than the first is served.

        Every call has to be answered, some more with the other certificate included.

        Returns:
            Every certificate that was served, in order, each once.
        """
        seen = [await self.served()]
        await since
        more = _CALLS_AFTERWARDS
        while more:
            more -= len(seen) > 1
            await self.world.apply("llama", decode={"seed": time.monotonic_ns() % 2**30})  # an ApiError ends the test
            await proxy.renew()
            if (served := await self.served()) != seen[-1]:
                seen.append(served)
        return seen

    async def holds(self, material: KeyMaterial) -> bool:
        """Whether the configuration has this bundle."""
        bundle = (await self.configuration())["clientConfig"].get("caBundle")
        return bool(bundle == b64encode(material.bundle).decode())

    async def refused(self, name: str = "llama", **spec: Any) -> str:
        """What the API server says to a resource that must not get in."""
        try:
            await self.world.apply(name, **spec)
        except ApiError as error:
            return error.message
        raise AssertionError(f"{spec} got in")

    async def insists(self) -> None:
        """Wait until the API server asks: it hears of a changed configuration a moment later."""

        async def asks() -> bool:
            try:
                await self.world.apply("probe", decode={"parallelism": {"tensor": 1}}, engine={"args": {"nonsense": 1}})
            except ApiError as error:
                return "no such option" in error.message
            return False

        await until(asks, "the API server asks the webhook")
