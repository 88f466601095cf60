"""Complete lists continue after failures, and run soon after a watch has started or restarted."""

import asyncio
import json
from collections.abc import Callable, Iterable

import pytest

from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCE, WATCHED, Owner
from pdinference.controller.metrics import Metrics
from pdinference.runtime import resync
from pdinference.runtime.freshness import Freshness
from pdinference.runtime.resync import Resync

pytestmark = pytest.mark.virtual_time


class Lists(ApiServer):
    """Fails a number of times, at any kind or at one, then lists one resource."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.failing = ""
        self.complete = 0
        self.deleted = False

    async def page(self, path: str, *, most: int, **query: str) -> bytes:
        if self.failures and self.failing in path:
            self.failures -= 1
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        metadata = {"name": "llama", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1}
        there = path == RESOURCE.path(None) and not self.deleted
        items = [{"metadata": metadata, "spec": {}}] if there else []
        self.complete += path == RESOURCE.path(None)
        return json.dumps({"metadata": {"resourceVersion": "5"}, "items": items}).encode()


Enqueue = Callable[[Iterable[Owner]], None]


def make(api: Lists, enqueue: Enqueue, interval: float = 3600, cache: Cache | None = None) -> Resync:
    return Resync(api, cache or Cache(), Metrics(), kinds=WATCHED, namespaces=(), interval=interval, enqueue=enqueue)


async def test_the_first_list_is_tried_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_FIRST_RETRY_S", 0.01)
    taken: list[Owner] = []
    sync = make(Lists(failures=3), taken.extend)
    await sync.first()
    assert sync.synced
    assert taken == [Owner("ns", "llama")]


async def test_every_resource_is_queued_after_each_interval() -> None:
    taken: list[Owner] = []
    api = Lists()
    sync = make(api, taken.extend, interval=0.02)
    await sync.first()
    running = asyncio.create_task(sync.forever())
    await asyncio.sleep(0.3)
    running.cancel()
    assert len(taken) >= 3


async def test_a_watch_that_started_over_brings_a_list_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_SETTLE_S", 0.01)
    api = Lists()
    sync = make(api, list[Owner]().extend)
    await sync.first()
    running = asyncio.create_task(sync.forever())
    await asyncio.sleep(0.02)
    sync.request()
    await asyncio.sleep(0.2)
    running.cancel()
    assert api.complete == 2


@pytest.mark.parametrize(("failures", "failing"), [(0, ""), (3, ""), (1, WATCHED[-1].path(None))])
async def test_what_was_deleted_before_the_first_watches_began_is_noticed(
    monkeypatch: pytest.MonkeyPatch, failures: int, failing: str
) -> None:
    """Kopf's first list tells of what exists, and not of what the operator has in its cache and is gone.

    The next try does not find it again where only a later kind could not be listed.
    """
    monkeypatch.setattr(resync, "_SETTLE_S", 0.01)
    monkeypatch.setattr(resync, "_FIRST_RETRY_S", 0.01)
    api, cache, taken = Lists(), Cache(), asyncio.Queue[Owner]()

    def enqueue(owners: Iterable[Owner]) -> None:
        for owner in owners:
            taken.put_nowait(owner)

    sync = make(api, enqueue, cache=cache)
    freshness = Freshness(on_listed=sync.request)
    await sync.first()
    owner = taken.get_nowait()
    api.deleted, api.failures, api.failing = True, failures, failing
    freshness.listed(RESOURCE.path(None))
    freshness.connecting(RESOURCE.path(None))  # before anybody waits for it, as at a start
    running = asyncio.create_task(sync.forever())
    async with asyncio.timeout(10):
        assert await taken.get() == owner
    running.cancel()
    assert taken.empty(), "it is looked at once more"
    assert cache.resources.get(owner) is None
