"""P and D wait for the Job that downloads their model."""

from collections.abc import Callable

import pytest

from pdinference.cluster.kinds import JOB
from tests.inference.model_jobs import Json, jobs, model, report
from tests.inference.world import World

GIB = 2**30


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document(model=model()))


def workloads(world: World) -> list[str]:
    return [*world.api.names("/statefulsets/"), *world.api.names("/deployments/llama-decode-")]


async def test_the_job_comes_first_and_p_and_d_when_it_is_done(world: World) -> None:
    assert not (await world.reconcile()).retry
    assert len(jobs(world)) == 1
    assert workloads(world) == []
    report(world, phase="Downloading", downloadedBytes=GIB, totalBytes=4 * GIB)
    await world.reconcile()
    assert world.api.writes() == 2, "the status, and an Event"
    assert "1.0 GiB of 4.0 GiB (25 %)" in world.condition("Ready")["message"]
    assert world.status["model"] == {"revision": "", "downloadedBytes": GIB, "totalBytes": 4 * GIB}
    assert workloads(world) == []
    report(world, complete=True, phase="Ready", totalBytes=4 * GIB, facts={"config": {"num_hidden_layers": 1}})
    await world.reconcile()
    assert len(workloads(world)) == 2
    assert world.condition("ModelReady")["status"] == "True"
    assert world.status["model"]["facts"]["config"] == {"num_hidden_layers": 1}
    assert not (await world.reconcile()).retry
    assert world.api.names("/controllerrevisions/"), "what the Job found out does not refuse the spec, so it is kept"
    await world.reconcile()
    assert world.api.writes() == 0


async def test_while_it_downloads_and_nothing_changes_nothing_is_written(world: World) -> None:
    await world.reconcile()
    report(world, phase="Downloading", downloadedBytes=1, totalBytes=2)
    await world.reconcile()
    await world.reconcile()
    assert not world.api.requests
    world.restart()
    await world.reconcile()
    assert world.api.writes() == 0


@pytest.mark.parametrize("strategy", ["BlueGreen", "Recreate"])
async def test_the_old_revision_serves_until_the_new_model_is_ready(world: World, strategy: str) -> None:
    world.edit(model=model(), rollout={"strategy": strategy})
    await world.reconcile()
    report(world, complete=True, phase="Ready")
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    old = set(workloads(world))
    world.edit(model=model("owner/other"), rollout={"strategy": strategy})
    await world.reconcile()
    await world.reconcile()
    assert len(jobs(world)) == 1, "the Job of the old model is pruned"
    assert set(workloads(world)) == old
    assert world.condition("Ready")["status"] == "True"
    report(world, complete=True, phase="Ready")
    await world.reconcile()
    await world.reconcile()
    assert len(set(workloads(world)) - old) == 2


async def test_pods_that_run_stay_when_the_job_is_run_again(world: World) -> None:
    await world.reconcile()
    report(world, complete=True, phase="Ready")
    await world.reconcile()
    pair = workloads(world)
    (name,) = jobs(world)
    del world.api.objects[JOB.path("ns", name)]
    world.sync()
    await world.reconcile()
    assert jobs(world) == [name]
    assert workloads(world) == pair
