"""Completes webhook configurations and the APIService with CA bundle and rules, once the operator can serve calls.

Tests: tests/serving/test_certificates.py, tests/loadmetrics/test_registration.py
"""

import logging
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from pdinference.api import names
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BundleHolder:
    """An object that contains the CA bundle.

    Attributes:
        path: Its URL path.
        filled: Returns the fields to apply from the live object and `{caBundle: ...}`, so that the operator manages no
            other field. Without a bundle another component, such as cert-manager, sets it.
    """

    path: str
    filled: Callable[[Json, Json], Json]


def webhook_configurations(name: str, rules: Json) -> tuple[BundleHolder, ...]:
    """The ValidatingWebhookConfiguration and the MutatingWebhookConfiguration, with all their webhooks.

    Args:
        name: Name of both.
        rules: Requests for which the API server calls the webhooks. Once they are set, it requires a response.
    """

    def filled(live: Json, bundle: Json) -> Json:
        webhooks = ({"name": webhook["name"], "rules": [rules]} for webhook in live.get("webhooks") or ())
        return {"webhooks": [webhook | ({"clientConfig": bundle} if bundle else {}) for webhook in webhooks]}

    path = "/apis/admissionregistration.k8s.io/v1"
    return tuple(
        BundleHolder(f"{path}/{kind}webhookconfigurations/{name}", filled) for kind in ("validating", "mutating")
    )


def api_service(name: str, service: tuple[str, str]) -> BundleHolder:
    """The APIService, if it refers to this Service (namespace, name); another server may own the API group."""

    def filled(live: Json, bundle: Json) -> Json:
        leads_to = (live.get("spec") or {}).get("service") or {}
        ours = (leads_to.get("namespace"), leads_to.get("name")) == service
        return {"spec": bundle} if ours else {}

    return BundleHolder(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}", filled)


async def publish(api: ApiServer, holder: BundleHolder, bundle: bytes | None) -> None:
    """Apply the missing fields, if any.

    Server-side apply of only these fields leaves all others to the manager that installs the chart, so GitOps tools see
    no drift.

    Raises:
        ApiError: It could not be written.
    """
    try:
        live = await api.get(holder.path)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        _LOG.warning("%s does not exist, so the API server makes no calls for it", holder.path)
        return
    wanted = holder.filled(live, {} if bundle is None else {"caBundle": b64encode(bundle).decode()})
    if not _contains(live, wanted):
        identity = {"apiVersion": live["apiVersion"], "kind": live["kind"]}
        # The uid excludes an object of the same name that was created since.
        metadata = {"name": live["metadata"]["name"], "uid": live["metadata"]["uid"]}
        await api.apply(holder.path, {**identity, "metadata": metadata, **wanted}, manager=names.FIELD_MANAGER)
        _LOG.info("%s is complete: the API server can call the operator", holder.path)


def _contains(live: object, wanted: object) -> bool:
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_contains, live, wanted))
    return live == wanted
