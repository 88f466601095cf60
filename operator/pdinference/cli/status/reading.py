"""Reads PDInferences with their pods and PDScalers, with the rights of the user.

Tests: tests/cli/test_status.py
"""

from datetime import UTC, datetime
from typing import Final

from pdinference.api import names
from pdinference.cli.chosen import chosen
from pdinference.cli.listing import ObjectListing, listing
from pdinference.cli.status.overview import Overview, overview
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.kinds import POD, RESOURCE, SCALER

_MOST: Final = "500"


async def read_one(api: ApiServer, namespace: str, name: str) -> Overview:
    """Read one resource.

    Raises:
        ApiError: The API server returned an error.
        ClickException: The resource does not exist.
    """
    resource = await chosen(api, namespace, name)
    selector = {"labelSelector": f"{names.LABEL_NAME}={name}"}
    pods = await listing(api, POD.path(namespace), **selector)
    scalers = await listing(api, SCALER.path(namespace), **selector)
    notes = _notes(pods, scalers)
    return overview(resource, pods.items, scalers.items, notes, now=None if pods.unreadable else datetime.now(UTC))


async def read_all(api: ApiServer, namespace: str) -> list[Overview]:
    """Read all resources of a namespace, without their pods.

    Raises:
        ApiError: The API server returned an error.
    """
    found = await api.get(RESOURCE.path(namespace), limit=_MOST)
    items: list[Json] = found.get("items") or []
    return [overview(item) for item in items]


def _notes(*found: ObjectListing) -> list[str]:
    return [one.unreadable for one in found if one.unreadable]
