"""Lists are read page by page, of the served namespaces only, and as one consistent state."""

from typing import Any

import pytest

from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, WATCHED, Owner
from pdinference.cluster.listing import list_all
from tests.cluster.objects import OWNER, Json, live, manifest

SERVICES = CHILD_BY_NAME["Service"].path(None)


class Pages(ApiServer):
    """Answers lists from prepared pages."""

    def __init__(self, *services: Json | ApiError) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._services = iter(services)

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        self.asked.append((path, query))
        answer: Any = next(self._services) if path == SERVICES else page()
        if isinstance(answer, ApiError):
            raise answer
        return answer  # type: ignore[no-any-return]


def page(*names: str, more: str = "") -> Json:
    items = [live(manifest(name=name), uid=name, version=3) for name in names]
    return {"metadata": {"resourceVersion": "9", "continue": more}, "items": items}


async def corrected(api: Pages, cache: Cache, *namespaces: str) -> set[Owner]:
    found = [owners async for owners in list_all(api, cache, namespaces)]
    return set().union(*found)


async def test_all_pages_are_read() -> None:
    cache = Cache()
    api = Pages(page("a", more="token"), page("b"))
    assert await corrected(api, cache) == {OWNER}
    assert len(cache.children) == 2
    assert [query.get("continue") for path, query in api.asked if path == SERVICES] == [None, "token"]


async def test_a_list_that_expired_half_way_starts_again() -> None:
    cache = Cache()
    await corrected(Pages(page("gone", more="token"), ApiError(410, "Expired", "too old"), page("a")), cache)
    assert [key[2] for key, _ in cache.children.items()] == ["a"]


async def test_an_error_leaves_the_cache_as_it_is() -> None:
    cache = Cache()
    await corrected(Pages(page("a")), cache)
    with pytest.raises(ApiError):
        await corrected(Pages(ApiError(403, "Forbidden", "no")), cache)
    assert len(cache.children) == 1


async def test_only_what_is_served_is_asked_for() -> None:
    api = Pages()
    await corrected(api, Cache(), "one", "two")
    assert len(api.asked) == 2 * len(WATCHED)
    assert all("/namespaces/one/" in path or "/namespaces/two/" in path for path, _ in api.asked)


async def test_children_are_selected_by_the_server() -> None:
    api = Pages(page())
    await corrected(api, Cache())
    unselected = [path for path, query in api.asked if "labelSelector" not in query]
    assert unselected == ["/apis/pdinference.io/v1alpha1/pdinferences", "/apis/pdinference.io/v1alpha1/pdbatches"]


async def test_a_kind_that_an_older_cluster_lacks_is_taken_for_empty() -> None:
    class Older(Pages):
        async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
            if path.startswith("/apis/resource.k8s.io/"):
                raise ApiError(404, "NotFound", "the server could not find the requested resource")
            return await super().get(path, accept=accept, **query)

    cache = Cache()
    await corrected(Older(page("a")), cache)
    assert len(cache.children) == 1


async def test_a_kind_that_every_cluster_has_must_be_there() -> None:
    with pytest.raises(ApiError):
        await corrected(Pages(ApiError(404, "NotFound", "no such page")), Cache())
