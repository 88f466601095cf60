"""Reads PDInferences with their pods and PDScalers, with the rights of the user."""

from http import HTTPStatus
from typing import Final

from pdinference.api import names
from pdinference.cli.listing import Listing, listing
from pdinference.cli.status.overview import Overview, overview
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD, RESOURCE, SCALER

_NO_KIND: Final = (
    "This cluster has no PDInferences: the operator's CRDs are not installed. See the README, and check with "
    "`kubectl pdi doctor`."
)
_MOST: Final = "500"


class NotInstalledError(Exception):
    """The API server does not know the kind."""


async def read_one(api: ApiServer, namespace: str, name: str) -> Overview:
    """Read one resource.

    Raises:
        ApiError: The API server returned an error, or the resource does not exist.
    """
    resource = await api.get(RESOURCE.path(namespace, name))
    selector = {"labelSelector": f"{names.LABEL_NAME}={name}"}
    pods = await listing(api, POD.path(namespace), **selector)
    scalers = await listing(api, SCALER.path(namespace), **selector)
    return overview(resource, pods.items, scalers.items, _notes(pods, scalers))


async def read_all(api: ApiServer, namespace: str) -> list[Overview]:
    """Read all resources of a namespace, without their pods.

    Raises:
        ApiError: The API server returned an error.
        NotInstalledError: The cluster does not have the kind.
    """
    try:
        found = await api.get(RESOURCE.path(namespace), limit=_MOST)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise NotInstalledError(_NO_KIND) from None
        raise
    items: list[Json] = found.get("items") or []
    return [overview(item) for item in items]


def _notes(*found: Listing) -> list[str]:
    return [one.unreadable for one in found if one.unreadable]
