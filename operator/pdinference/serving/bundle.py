"""Objects of the API server that name a CA bundle: they must hold ours before a call can succeed."""

import logging
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass

from pdinference.api import names
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError

_LOG = logging.getLogger(__name__)
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class BundleHolder:
    """One object that is to hold the CA bundle.

    Attributes:
        path: Its URL path.
        filled: From the live object and the bundle in base64 to what is to be applied: identity, and the places where
            the bundle goes, and nothing else, so that no other field has us as its manager.
    """

    path: str
    filled: Callable[[Json, str], Json]


def webhook_configuration(name: str) -> BundleHolder:
    """A ValidatingWebhookConfiguration, in all of its webhooks."""

    def filled(live: Json, bundle: str) -> Json:
        webhooks = [
            {"name": webhook["name"], "clientConfig": {"caBundle": bundle}} for webhook in live.get("webhooks") or ()
        ]
        return {"webhooks": webhooks}

    return BundleHolder(f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}", filled)


def api_service(name: str) -> BundleHolder:
    """An APIService."""
    return BundleHolder(
        f"/apis/apiregistration.k8s.io/v1/apiservices/{name}", lambda _, bundle: {"spec": {"caBundle": bundle}}
    )


async def publish(api: ApiServer, holder: BundleHolder, bundle: bytes) -> None:
    """Write the bundle where it is missing; nothing when it is there.

    Server-side apply of these fields alone leaves all others to whoever installs the chart, so GitOps sees no drift.

    Raises:
        ApiError: It could not be written.
    """
    try:
        live = await api.get(holder.path)
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        _LOG.warning("%s does not exist, so nobody will call for it", holder.path)
        return
    wanted = holder.filled(live, b64encode(bundle).decode())
    if not _contains(live, wanted):
        identity = {"apiVersion": live["apiVersion"], "kind": live["kind"]}
        metadata = {"name": live["metadata"]["name"], "uid": live["metadata"]["uid"]}  # never one that was made since
        await api.apply(holder.path, {**identity, "metadata": metadata, **wanted}, manager=names.FIELD_MANAGER)
        _LOG.info("The CA bundle of %s is up to date", holder.path)


def _contains(live: object, wanted: object) -> bool:
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_contains, live, wanted))
    return live == wanted
