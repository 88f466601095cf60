"""Reads the facts with the rights of the user. What may not be read is noted with the missing right."""

from http import HTTPStatus
from typing import Final

from pdinference.api import names
from pdinference.api.plain_text import plain
from pdinference.cli.doctor.facts import ClusterFacts, Listing
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import NETWORK_POLICY

_PAGE: Final = 250
_MOST_PAGES: Final = 80
"""20,000 objects."""
_OPERATOR_SELECTOR: Final = "app.kubernetes.io/part-of=pdinference,app.kubernetes.io/component=operator"
DEVICE_API: Final = "resource.k8s.io"


async def read_facts(api: ApiServer, namespace: str) -> ClusterFacts:
    """Read everything that the checks need.

    Raises:
        ApiError: The API server does not answer, or refuses even its version.
    """
    groups = await _groups(api)
    has_devices = "v1" in groups.get(DEVICE_API, ())
    return ClusterFacts(
        version=str((await api.get("/version")).get("gitVersion", "")),
        groups=groups,
        kinds=await _kinds(api),
        operators=await _list(api, "/apis/apps/v1/deployments", labelSelector=_OPERATOR_SELECTOR),
        webhooks=await _list(api, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"),
        nodes=await _list(api, "/api/v1/nodes"),
        device_classes=await _list(api, f"/apis/{DEVICE_API}/v1/deviceclasses") if has_devices else Listing(),
        slices=await _list(api, f"/apis/{DEVICE_API}/v1/resourceslices") if has_devices else Listing(),
        policies=await _list(api, NETWORK_POLICY.path(namespace)),
    )


async def _groups(api: ApiServer) -> dict[str, frozenset[str]]:
    groups = (await api.get("/apis")).get("groups") or ()
    return {group["name"]: frozenset(version["version"] for version in group["versions"]) for group in groups}


async def _kinds(api: ApiServer) -> frozenset[str]:
    try:
        found = await api.get(f"/apis/{names.API_VERSION}")
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return frozenset()
        raise
    return frozenset(resource["name"] for resource in found.get("resources") or ())


async def _list(api: ApiServer, path: str, **query: str) -> Listing:
    items: list[Json] = []
    query["limit"] = str(_PAGE)
    try:
        for _ in range(_MOST_PAGES):
            page = await api.get(path, **query)
            items += page.get("items") or ()
            query["continue"] = (page.get("metadata") or {}).get("continue") or ""
            if not query["continue"]:
                return Listing(tuple(items))
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return Listing(unreadable=f"You may not list {path.rpartition('/')[2]}: {plain(error.message, 300)}")
        if error.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            return Listing(unreadable=f"{path} cannot be listed: {plain(error.message, 300)}")
        raise
    return Listing(unreadable=f"{path} has more than {_PAGE * _MOST_PAGES} objects.")
