"""A change of `spec.transfer.path` is a roll-out: what serves stays until the other path serves."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.inference.scaled import recommend, rests, serving
from tests.inference.test_mode import of_p, pods_of_p_end
from tests.inference.world import World

Json = dict[str, Any]
SHARED = {"hostLocal": {"parameter": 1, "decode": 2}}


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document())


async def test_the_pods_of_d_alone_are_a_complete_revision(world: World) -> None:
    world.edit(transfer=SHARED)
    await serving(world)
    assert of_p(world) == set()
    assert world.condition("Ready")["message"].startswith("Requests are answered; 1 router pod ready.")
    assert world.condition("ParameterReady")["reason"] == "HostLocal"
    assert world.condition("Progressing")["reason"] == "RolloutComplete"
    assert await rests(world)


async def test_a_change_of_the_path_keeps_the_serving_revision_until_the_other_serves(world: World) -> None:
    first = await serving(world)
    for path in ("HostLocal", "Network"):
        world.edit(transfer={"path": path})
        await world.reconcile()
        await world.reconcile()
        assert world.condition("Ready")["message"].startswith("Requests are answered; 1 router pod ready.")
        assert (first in world.revisions(), world.status["servingRevision"]) == (True, first)
        first = await serving(world)
        pods_of_p_end(world)
        await world.reconcile()
    assert await rests(world)


async def test_a_budget_counts_the_gpus_of_whole_pods(world: World) -> None:
    scaled = {"replicas": 1, "autoscaling": {"maxReplicas": 9}}
    world.edit(transfer=SHARED, decode=scaled, autoscaling={"gpuBudget": 7})
    await serving(world)
    recommend(world, 9)
    await world.reconcile()
    assert world.status["roles"]["decode"]["desired"] == 2, "2 x 3 GPUs of 7"
