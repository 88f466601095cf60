"""Reads the facts with the rights of the user.

Tests: tests/integration/test_doctor.py
"""

from http import HTTPStatus
from typing import Final

from pdinference.api import names
from pdinference.cli.doctor.dropped_fields import dropped_fields
from pdinference.cli.doctor.facts import ClusterFacts
from pdinference.cli.listing import EMPTY, ObjectListing, listing
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import NETWORK_POLICY

DEVICE_API: Final = "resource.k8s.io"


async def read_facts(api: ApiServer, namespace: str, deployments: ObjectListing) -> ClusterFacts:
    """Read everything that the checks need, beside the operator's Deployments.

    Raises:
        ApiError: The API server does not answer, or refuses even its version.
    """
    groups = await _groups(api)
    has_devices = "v1" in groups.get(DEVICE_API, ())
    return ClusterFacts(
        version=str((await api.get("/version")).get("gitVersion", "")),
        groups=groups,
        kinds=await _kinds(api),
        dropped_fields=await dropped_fields(api),
        operators=deployments,
        webhooks=await listing(api, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"),
        nodes=await listing(api, "/api/v1/nodes"),
        device_classes=await listing(api, f"/apis/{DEVICE_API}/v1/deviceclasses") if has_devices else EMPTY,
        slices=await listing(api, f"/apis/{DEVICE_API}/v1/resourceslices") if has_devices else EMPTY,
        policies=await listing(api, NETWORK_POLICY.path(namespace)),
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
