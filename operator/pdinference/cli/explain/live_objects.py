"""Reads the objects of a PDInference from the cluster to a cache, with the user's credentials.

Tests: tests/cli/test_explain.py
"""

from collections import Counter
from http import HTTPStatus

from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCE, RESOURCES, Kind, Owner, watched
from pdinference.cluster.listing import list_all
from pdinference.cluster.state.records import ResourceRecord


class UnreadableResourceError(Exception):
    """The resource cannot be parsed."""


class ObjectCache(Cache):
    """A cache that knows what it lacks.

    Attributes:
        left_out: Number of unreadable objects of each kind.
        refused: Kinds that the user may not list.
    """

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.refused: list[Kind] = []
        super().__init__(self._count)

    def _count(self, kind: Kind) -> None:
        self.left_out[kind.name] += 1


async def read_live(api: ApiServer, body: Json, *, keda: bool) -> tuple[ObjectCache, ResourceRecord]:
    """Read all objects in the namespace of a resource that the operator watches, page by page.

    Kinds that the user may not list are noted in the cache.

    Args:
        api: The API server.
        body: The resource.
        keda: Whether the operator is installed with KEDA support.

    Raises:
        ApiError: The API server returned an error.
        UnreadableError: The resource cannot be read.
    """
    cache = ObjectCache()
    owner = Owner(body["metadata"]["namespace"], body["metadata"]["name"])
    cache.observe(RESOURCE, body, deleted=False)
    if (resource := cache.resources.get(owner)) is None:
        raise UnreadableResourceError(f"{owner} cannot be read.")
    for kind in watched(keda=keda):
        if kind in RESOURCES:
            continue
        try:
            async for _ in list_all(api, cache, [owner.namespace], [kind]):
                pass
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            cache.refused.append(kind)
    return cache, resource
