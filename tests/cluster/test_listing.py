"""Lists are read page by page, of the served namespaces only, and as one consistent state."""

import json
from typing import Any

import pytest

from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer, PageTooLargeError
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, RESOURCE, WATCHED, Kind, Owner
from pdinference.cluster.listing import list_all
from tests.cluster.large_objects import body, deep
from tests.cluster.objects import OWNER, Json, live, manifest

SERVICES = CHILD_BY_NAME["Service"].path(None)


class Pages(ApiServer):
    """Answers lists from prepared pages."""

    def __init__(self, *services: Json | bytes | ApiError) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._services = iter(services)

    async def page(self, path: str, *, most: int, **query: str) -> bytes:
        self.asked.append((path, query))
        answer: Any = next(self._services) if path == SERVICES else page()
        if isinstance(answer, Exception):
            raise answer
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        if len(data) > most:
            raise PageTooLargeError
        return data


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
        async def page(self, path: str, *, most: int, **query: str) -> bytes:
            if path.startswith("/apis/resource.k8s.io/"):
                raise ApiError(404, "NotFound", "the server could not find the requested resource")
            return await super().page(path, most=most, **query)

    cache = Cache()
    await corrected(Older(page("a")), cache)
    assert len(cache.children) == 1


async def test_a_kind_that_every_cluster_has_must_be_there() -> None:
    with pytest.raises(ApiError):
        await corrected(Pages(ApiError(404, "NotFound", "no such page")), Cache())


RESOURCES = RESOURCE.path(None)


class Resources(ApiServer):
    """Answers pages of PDInferences, as many objects as are asked for."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = bodies
        self.limits: list[int] = []

    async def page(self, path: str, *, most: int, **query: str) -> bytes:
        if path != RESOURCES:
            return json.dumps(page()).encode()
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        self.limits.append(limit)
        items = b",".join(self.bodies[start : start + limit])
        more = str(start + limit) if start + limit < len(self.bodies) else ""
        data = b'{"metadata":{"resourceVersion":"9","continue":"%b"},"items":[%b]}' % (more.encode(), items)
        if len(data) > most:
            raise PageTooLargeError
        return data


async def test_resources_that_cannot_be_read_do_not_hide_the_others() -> None:
    specs = ["{}", deep(50_000), json.dumps({"x": "y" * 1_300_000}), "{}"]
    cache = Cache()
    api = Resources(*(body(spec, name=f"r{n}", uid=f"u{n}") for n, spec in enumerate(specs)))
    owners = set().union(*[found async for found in list_all(api, cache, ())])
    assert {owner.name for owner in owners} == {"r0", "r1", "r2", "r3"}
    unreadable = {record.owner.name: record.unreadable for _, record in cache.resources.items()}
    assert (unreadable["r0"], unreadable["r3"]) == ("", "")
    assert "nested deeper" in unreadable["r1"]
    assert "1300009 bytes" in unreadable["r2"]


async def test_an_object_that_is_not_as_its_kind_promises_is_left_out_and_noted() -> None:
    left_out: list[Kind] = []
    cache = Cache(left_out.append)
    api = Resources(b'{"spec":{}}', b"5", b'{"metadata":[]}', body("{}"), b'{"metadata":{"name":[1]}}')
    assert [owners async for owners in list_all(api, cache, ())]
    assert [record.owner.name for _, record in cache.resources.items()] == ["llama"]
    assert left_out == [RESOURCE] * 4


async def test_pages_are_as_large_as_memory_allows() -> None:
    large = json.dumps({"x": "y" * 1_300_000})
    small, huge = (
        [body(spec, name=f"{name}{n}", uid=f"{name}{n}") for n in range(count)]
        for spec, name, count in (("{}", "small", 1200), (large, "huge", 40))
    )
    api = Resources(*small, *huge)
    cache = Cache()
    assert [owners async for owners in list_all(api, cache, ())]
    assert len(cache.resources) == 1240
    assert api.limits[:3] == [100, 400, 500]
    assert len(api.limits) < 40
    assert min(api.limits) >= 1


async def test_what_is_no_list_is_an_error_like_any_other() -> None:
    with pytest.raises(ApiError):
        await corrected(Pages(b"<html>"), Cache())


async def test_a_second_list_keeps_the_records_that_are_there() -> None:
    """Else every complete list would take as much memory as the cache."""
    cache = Cache()
    api = Resources(*(body("{}", name=f"r{n}", uid=f"u{n}") for n in range(3)))
    for _ in range(2):
        before = {key: id(record) for key, record in cache.resources.items()}
        assert [owners async for owners in list_all(api, cache, ())]
    assert {key: id(record) for key, record in cache.resources.items()} == before
    seen: list[int] = []
    replace = cache.replace

    def noted(kind: Kind, records: Any, *rest: Any) -> set[Owner]:
        seen.extend(map(id, records))
        return replace(kind, records, *rest)

    cache.replace = noted  # type: ignore[method-assign, assignment]
    assert [owners async for owners in list_all(api, cache, ())]
    assert sorted(seen) == sorted(before.values())
