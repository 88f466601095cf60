"""Objects of the API server through which it calls us: completed when we can answer, with what the chart leaves out."""

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
        filled: From the live object and `{caBundle: ...}` to what is to be applied, and nothing else, so that no other
            field has us as its manager. Without a bundle somebody else, such as cert-manager, takes care of it.
    """

    path: str
    filled: Callable[[Json, Json], Json]


def webhook_configurations(name: str, rules: Json) -> tuple[BundleHolder, ...]:
    """A ValidatingWebhookConfiguration and a MutatingWebhookConfiguration, in all of their webhooks.

    Args:
        name: Of both.
        rules: What the webhooks are called for: from now on the API server insists on an answer.
    """

    def filled(live: Json, bundle: Json) -> Json:
        webhooks = ({"name": webhook["name"], "rules": [rules]} for webhook in live.get("webhooks") or ())
        return {"webhooks": [webhook | ({"clientConfig": bundle} if bundle else {}) for webhook in webhooks]}

    path = "/apis/admissionregistration.k8s.io/v1"
    return tuple(
        BundleHolder(f"{path}/{kind}webhookconfigurations/{name}", filled) for kind in ("validating", "mutating")
    )


def api_service(name: str, service: tuple[str, str]) -> BundleHolder:
    """An APIService, as long as it leads to this Service (namespace, name): somebody else may have the API group."""

    def filled(live: Json, bundle: Json) -> Json:
        leads_to = (live.get("spec") or {}).get("service") or {}
        ours = (leads_to.get("namespace"), leads_to.get("name")) == service
        return {"spec": bundle} if ours else {}

    return BundleHolder(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}", filled)


async def publish(api: ApiServer, holder: BundleHolder, bundle: bytes | None) -> None:
    """Write what is missing; nothing when it is there.

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
    wanted = holder.filled(live, {} if bundle is None else {"caBundle": b64encode(bundle).decode()})
    if not _contains(live, wanted):
        identity = {"apiVersion": live["apiVersion"], "kind": live["kind"]}
        metadata = {"name": live["metadata"]["name"], "uid": live["metadata"]["uid"]}  # never one that was made since
        await api.apply(holder.path, {**identity, "metadata": metadata, **wanted}, manager=names.FIELD_MANAGER)
        _LOG.info("%s has what it needs to call us", holder.path)


def _contains(live: object, wanted: object) -> bool:
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_contains, live, wanted))
    return live == wanted
