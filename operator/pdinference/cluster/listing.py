"""Complete lists from the API server into the cache: the cure for everything that a watch may have missed."""

from collections.abc import AsyncIterator, Collection

from pdinference.cluster.cache import Cache, Record, record_of
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import WATCHED, Kind, Owner
from pdinference.cluster.records import version_of

_PAGE = "500"
_NOT_FOUND = 404
_EXPIRED = 410
_ATTEMPTS = 3


async def list_all(
    api: ApiServer, cache: Cache, namespaces: Collection[str], kinds: Collection[Kind] = WATCHED
) -> AsyncIterator[set[Owner]]:
    """List every kind and correct the cache; after each list, the owners of all that differed come.

    Args:
        api: The API server.
        cache: What to correct.
        namespaces: The namespaces that are served; empty for the whole cluster.
        kinds: What to list.
    """
    for kind in kinds:
        for namespace in namespaces or (None,):
            records, version = await _list(api, kind, namespace)
            yield cache.replace(kind, records, version, namespace)


async def _list(api: ApiServer, kind: Kind, namespace: str | None) -> tuple[list[Record], int]:
    """One consistent list, page by page; from the start again when the server forgot where we were."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await _pages(api, kind, namespace)
        except ApiError as error:
            if error.status == _NOT_FOUND and kind.optional:  # not served here, so there are none
                return [], 0
            if error.status != _EXPIRED or attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


async def _pages(api: ApiServer, kind: Kind, namespace: str | None) -> tuple[list[Record], int]:
    query = {"limit": _PAGE} | ({"labelSelector": kind.selector} if kind.selector else {})
    records: list[Record] = []
    while True:
        page = await api.get(kind.path(namespace), **query)
        records += filter(None, (record_of(kind, body) for body in page.get("items") or ()))
        token = page["metadata"].get("continue")
        if not token:
            return records, version_of(page["metadata"]["resourceVersion"])
        query["continue"] = token
