"""The certificate of the HTTPS server, renewed while it serves.

Self-managed: a CA and a certificate in one Secret, which all replicas share. Each replica renews what is due; if two do
so at the same time, one gets a conflict and reads again. Mounted: files that another component, such as cert-manager,
renews.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.serving.authority import KeyMaterial, Lifetimes, renewed
from pdinference.serving.bundle import BundleHolder, publish
from pdinference.serving.tls_context import CertificateError, TLSContext

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 5
_LIFETIMES = Lifetimes()


class Certificates(ABC):
    """A certificate that is renewed in place.

    Attributes:
        context: TLS context of the server; new connections use the newest certificate.
    """

    def __init__(self, api: ApiServer, holders: Collection[BundleHolder]) -> None:
        self._api = api
        self._holders = holders
        self._tls = TLSContext()
        self.context = self._tls.context

    @property
    def ready(self) -> bool:
        """Whether there is a certificate."""
        return self._tls.ready

    async def keep(self, interval: float) -> None:
        """Refresh at intervals, without end. After a failure the current certificate stays in use."""
        while True:
            try:
                await self.refresh()
            except (ApiError, CertificateError, OSError, ValueError) as error:
                _LOG.warning("Refreshing the certificate failed: %s", error)
            await asyncio.sleep(interval)

    @abstractmethod
    async def refresh(self) -> None:
        """Renew what is due, and use the newest certificate.

        Raises:
            ApiError: The API server failed.
            CertificateError: There is no certificate.
        """

    async def _publish(self, bundle: bytes | None) -> None:
        for holder in self._holders:
            await publish(self._api, holder, bundle)


class MountedCertificates(Certificates):
    """Files `tls.crt` and `tls.key` in a folder. Another component renews them and publishes their CA."""

    def __init__(self, api: ApiServer, folder: Path, *, holders: Collection[BundleHolder]) -> None:
        super().__init__(api, holders)
        self._folder = folder

    async def refresh(self) -> None:
        """Load the files if they changed, and complete the objects through which the API server calls."""
        self._tls.load_folder(self._folder)
        await self._publish(None)


class SelfManagedCertificates(Certificates):
    """A CA and a certificate in a Secret.

    Args:
        secret: Namespace and name. It must exist, because RBAC cannot restrict `create` to a name.
        hosts: Names and addresses of the server.
        holders: Objects that contain the CA bundle.
    """

    def __init__(
        self,
        api: ApiServer,
        secret: tuple[str, str],
        *,
        hosts: tuple[str, ...],
        holders: Collection[BundleHolder],
        lifetimes: Lifetimes = _LIFETIMES,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(api, holders)
        self._path = "/api/v1/namespaces/{}/secrets/{}".format(*secret)
        self._hosts = hosts
        self._lifetimes = lifetimes
        self._now = now

    async def refresh(self) -> None:
        """Renew what is due, publish the CA bundle, and use the certificate."""
        for _ in range(_ATTEMPTS):
            secret = await self._secret()
            current = KeyMaterial.from_secret(secret.get("data"))
            if current is not None:
                # Clients must trust a CA before it signs the certificate.
                await self._publish(current.bundle)
                if current.usable(self._hosts, self._now()):
                    self._tls.load(current.chain)  # also if its successor cannot be stored
            fresh = renewed(current, self._hosts, self._now(), self._lifetimes, published=current is not None)
            if fresh is not current:
                if not await self._written(secret, fresh):
                    continue
                await self._publish(fresh.bundle)
            self._tls.load(fresh.chain)
            return
        raise CertificateError(f"{self._path} changed during each of {_ATTEMPTS} attempts; the next refresh retries")

    async def _written(self, secret: Json, material: KeyMaterial) -> bool:
        """Write the Secret; False on a conflict with another writer."""
        try:
            await self._api.replace(self._path, {**secret, "data": material.as_secret()})
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                return False
            raise
        _LOG.info("Renewed the certificates in %s", self._path)
        return True

    async def _secret(self) -> Json:
        try:
            return await self._api.get(self._path)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise CertificateError(
                    f"Secret {self._path} does not exist. The chart creates it: run helm upgrade"
                ) from error
            raise
