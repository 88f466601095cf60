"""The history of valid specs on a real API server."""

import json
from typing import Any

from pdinference.api import names
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import Json
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import CONTROLLER_REVISION, RESOURCE
from pdinference.cluster.listing import list_all
from pdinference.cluster.records import ResourceRecord, resource_record
from tests.integration.world import World

TEMPLATE = "{% if a < b && c > d %}<|im_start|>\u2028 \U0001f600 é\x7f{% endif %}"
SPEC: Json = {"engine": {"env": {"TEMPLATE": TEMPLATE}}, "decode": {"gpuMemoryUtilization": 0.85, "seed": 2**32 - 1}}


async def stored(world: World, **spec: Any) -> ResourceRecord:
    await world.apply(**spec)
    return resource_record(names.KIND, await world.api.get(RESOURCE.path(world.namespace, "llama")))


async def listed(world: World) -> Cache:
    cache = Cache()
    async for _ in list_all(world.api, cache, [world.namespace], [CONTROLLER_REVISION]):
        pass
    return cache


async def test_any_spec_is_kept_as_it_is_and_its_entry_can_be_raised_later(world: World) -> None:
    """The API server compares the bytes of `data`, which it writes in its own way with each patch."""
    first = await stored(world, **SPEC)
    cache = await listed(world)
    for _ in range(2):  # the second time by what a list says
        history = History(world.api, cache)
        for record in (first, await stored(world, decode={"seed": 1})):
            written, _ = await history.remember(record)
            assert not written.failures
            assert len(written.applied) == 1
        cache = await listed(world)
    broken = await stored(world, engine={"args": {"nonsense": 1}})
    history = History(world.api, cache)
    await history.remember(first)
    entry = history.newest(broken)
    assert entry is not None
    assert entry.number == 5
    found = await history.read(broken, entry)
    assert found is not None
    assert found.spec == first.spec
    assert json.loads(found.spec)["engine"]["env"]["TEMPLATE"] == TEMPLATE
