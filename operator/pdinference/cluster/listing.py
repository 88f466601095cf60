"""Complete lists from the API server, which correct the cache after missed watch events."""

import asyncio
from collections.abc import AsyncIterator, Collection
from http import HTTPStatus
from typing import Final

import msgspec

from pdinference.cluster.cache import Cache, Record, record_of
from pdinference.cluster.client import ApiServer, PageTooLargeError
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCES, WATCHED, Kind, Owner
from pdinference.cluster.objects import UNREADABLE_ERRORS, parsed, shallow
from pdinference.cluster.state.records import version_of

_FIRST_PAGE: Final = 100
_LARGEST_PAGE: Final = 500
_GOOD_BYTES: Final = 4 * 2**20
_MOST_BYTES: Final = 16 * 2**20
_BYTES_AT_A_TIME: Final = 2**19
_ATTEMPTS = 3


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    token: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _Metadata
    items: list[msgspec.Raw] | None = None


async def list_all(
    api: ApiServer,
    cache: Cache,
    namespaces: Collection[str],
    kinds: Collection[Kind] = WATCHED,
) -> AsyncIterator[set[Owner]]:
    """List every kind and correct the cache. Yields, after each list, the owners of all records that differed.

    Args:
        api: The API server.
        cache: The cache to correct.
        namespaces: The namespaces to list; empty for the whole cluster.
        kinds: The kinds to list.
    """
    for kind in kinds:
        for namespace in namespaces or (None,):
            records, version = await _list(api, cache, kind, namespace)
            yield cache.replace(kind, records, version, namespace)


async def _list(api: ApiServer, cache: Cache, kind: Kind, namespace: str | None) -> tuple[list[Record], int]:
    """One consistent list, page by page. It starts again if the server reports an expired `continue` token."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await _pages(api, cache, kind, namespace)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND and kind.optional:  # the cluster does not serve the kind
                return [], 0
            if error.status != HTTPStatus.GONE or attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


async def _pages(api: ApiServer, cache: Cache, kind: Kind, namespace: str | None) -> tuple[list[Record], int]:
    query = {"labelSelector": kind.selector} if kind.selector else {}
    records: list[Record] = []
    limit = _FIRST_PAGE
    while True:
        try:
            data = await api.page(kind.path(namespace), most=_MOST_BYTES, limit=str(limit), **query)
        except PageTooLargeError:
            if limit == 1:
                raise ApiError(0, "TooLarge", f"an object of {kind.plural} has more than {_MOST_BYTES} bytes") from None
            limit = max(1, limit // 8)
            continue
        page = await _page(data)
        async for record in _records(kind, page.items or [], cache):
            records.append(record)  # noqa: PERF401 - mypy does not support asynchronous comprehensions of unions
        if not page.metadata.token:
            return records, version_of(page.metadata.version)
        query["continue"] = page.metadata.token
        limit = _next_limit(limit, len(data), len(page.items or []))


def _next_limit(limit: int, size: int, items: int) -> int:
    """The next page limit for the intended page size, from the average object size of the previous page."""
    return max(1, min(_LARGEST_PAGE, 4 * limit, _GOOD_BYTES * items // size))


async def _page(data: bytes) -> _Page:
    try:
        try:
            return msgspec.json.decode(data, type=_Page)
        except RecursionError:  # an object is too deep; the slow path runs in a thread
            return msgspec.json.decode(await asyncio.to_thread(shallow, data), type=_Page)
    except msgspec.MsgspecError as error:  # for example the response of a proxy
        raise ApiError(0, "NoList", f"the answer is not a list: {error}") from error


async def _records(kind: Kind, items: list[msgspec.Raw], cache: Cache) -> AsyncIterator[Record]:
    """Records of all objects that can be parsed. Yields to other tasks in between, because large objects take long."""
    size = 0
    for item in items:
        try:
            record = record_of(kind, parsed(item, kind in RESOURCES))
        except UNREADABLE_ERRORS:
            cache.unreadable(kind)
            continue
        if record is not None:
            yield cache.kept(record)
        size += len(item)
        if size > _BYTES_AT_A_TIME:
            size = 0
            await asyncio.sleep(0)
