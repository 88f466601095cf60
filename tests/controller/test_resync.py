"""Lists go on whatever happens, and come soon when a watch had to start over."""

import asyncio
from collections.abc import Iterable

import pytest

from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCE, WATCHED, Owner
from pdinference.controller import resync
from pdinference.controller.metrics import Metrics
from pdinference.controller.resync import Resync


class Lists(ApiServer):
    """Fails a number of times, then lists one resource."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.complete = 0

    async def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json:
        if self.failures:
            self.failures -= 1
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        metadata = {"name": "llama", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1}
        items = [{"metadata": metadata, "spec": {}}] if path == RESOURCE.path(None) else []
        self.complete += path == RESOURCE.path(None)
        return {"metadata": {"resourceVersion": "5"}, "items": items}


def make(api: Lists, taken: list[Owner], interval: float = 3600) -> Resync:
    def enqueue(owners: Iterable[Owner]) -> None:
        taken.extend(owners)

    return Resync(api, Cache(), Metrics(), kinds=WATCHED, namespaces=(), interval=interval, enqueue=enqueue)


async def test_the_first_list_is_tried_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_FIRST_RETRY_S", 0.01)
    taken: list[Owner] = []
    sync = make(Lists(failures=3), taken)
    await sync.first()
    assert sync.synced
    assert taken == [Owner("ns", "llama")]


async def test_every_resource_is_looked_at_after_each_interval() -> None:
    taken: list[Owner] = []
    api = Lists()
    sync = make(api, taken, interval=0.02)
    await sync.first()
    running = asyncio.create_task(sync.forever())
    await asyncio.sleep(0.3)
    running.cancel()
    assert len(taken) >= 3


async def test_a_watch_that_started_over_brings_a_list_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_SETTLE_S", 0.01)
    api = Lists()
    sync = make(api, [])
    await sync.first()
    running = asyncio.create_task(sync.forever())
    await asyncio.sleep(0.02)
    sync.ask()
    await asyncio.sleep(0.2)
    running.cancel()
    assert api.complete == 2
