"""Lists objects with the rights of the user. What may not be read is noted with the missing right.

Tests: tests/cli/test_status.py, tests/charts/test_installed.py, tests/integration/test_doctor.py
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pdinference.api.plain_text import plain
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError

_PAGE: Final = 250
_MOST_PAGES: Final = 80
"""20,000 objects."""


@dataclass(frozen=True)
class ObjectListing:
    """A list of objects.

    Attributes:
        items: The objects.
        unreadable: Why they could not be read; empty if they were.
    """

    items: tuple[Json, ...] = ()
    unreadable: str = ""


EMPTY: Final = ObjectListing()


async def listing(api: ApiServer, path: str, **query: str) -> ObjectListing:
    """List objects, page by page.

    Raises:
        ApiError: The API server does not answer, or cannot.
    """
    items: list[Json] = []
    query["limit"] = str(_PAGE)
    try:
        for _ in range(_MOST_PAGES):
            page = await api.get(path, **query)
            items += page.get("items") or ()
            query["continue"] = (page.get("metadata") or {}).get("continue") or ""
            if not query["continue"]:
                return ObjectListing(tuple(items))
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return ObjectListing(unreadable=f"You may not list {path.rpartition('/')[2]}: {plain(error.message, 300)}")
        if error.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            return ObjectListing(unreadable=f"{path} cannot be listed: {plain(error.message, 300)}")
        raise
    return ObjectListing(unreadable=f"{path} has more than {_PAGE * _MOST_PAGES} objects.")
