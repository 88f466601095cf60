"""Ratio and GPU budget in a reconcile: blocked roll-outs, and a steady state without writes."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.cluster.kinds import DEPLOYMENT, POD, SCALER, STATEFUL_SET
from tests.inference.budgeted import BUDGET, IMAGE
from tests.inference.scaled import recommend, rests, serving
from tests.inference.world import World

Json = dict[str, Any]


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document(**BUDGET))


def limited(world: World, role: Role) -> Json:
    """The condition Limited of a scale target."""
    (condition,) = world.api.objects[SCALER.path("ns", f"llama-{role}")]["status"]["conditions"]
    found: Json = condition
    return found


def workloads(world: World) -> dict[str, int]:
    """Pods of each workload of P and D."""
    kinds = [kind.path("ns") for kind in (STATEFUL_SET, DEPLOYMENT)]
    found = [path for path in world.api.objects if path.startswith(tuple(f"{kind}/" for kind in kinds))]
    return {
        path.rsplit("/", 1)[1]: world.api.objects[path]["spec"]["replicas"] for path in found if "router" not in path
    }


async def test_growth_stops_at_the_budget_and_goes_on_when_gpus_get_free(world: World) -> None:
    revision = await serving(world)
    p, d = f"llama-parameter-{revision}", f"llama-decode-{revision}"
    recommend(world, 6, "parameter")
    recommend(world, 6)
    await world.reconcile()
    assert workloads(world) == {p: 4, d: 4}
    await world.reconcile()
    for role in (Role.PARAMETER, Role.DECODE):
        assert (limited(world, role)["status"], limited(world, role)["reason"]) == ("True", "GpuBudget")
    assert await rests(world)
    recommend(world, 1, "parameter")
    await world.reconcile()
    assert workloads(world) == {p: 1, d: 4}, "the GPUs of pods that end are in use"
    world.roll_out()
    await world.reconcile()
    assert workloads(world) == {p: 1, d: 6}


async def test_a_second_revision_that_fits_starts_at_once(world: World) -> None:
    first = await serving(world)
    world.edit(**BUDGET, engine=IMAGE)
    await world.reconcile()
    second = world.status["revision"]
    assert workloads(world) == {f"llama-{role}-{r}": 1 for role in ("parameter", "decode") for r in (first, second)}
    world.roll_out()
    await world.reconcile()
    await world.reconcile()
    assert world.status["servingRevision"] == second
    assert set(workloads(world)) == {f"llama-parameter-{second}", f"llama-decode-{second}"}


async def test_a_second_revision_that_does_not_fit_is_reported_once(document: Callable[..., Json]) -> None:
    small = {**BUDGET, "autoscaling": {"gpuBudget": 3}}
    world = World(document(**small))
    first = await serving(world)
    world.edit(**small, engine=IMAGE)
    await world.reconcile()
    found = world.condition("Progressing")
    assert (found["status"], found["reason"]) == ("True", "GpuBudget")
    assert "needs 2 GPUs, 2 are in use, and spec.autoscaling.gpuBudget is 3. Raise it to 4" in found["message"]
    assert f"Revision {first} keeps answering requests until then." in found["message"]
    assert len(workloads(world)) == 2
    (event,) = [b for p, b in world.api.objects.items() if "/events/" in p and b["reason"] == "GpuBudget"]
    assert event["type"] == "Warning"
    assert await rests(world)


async def test_a_fixed_role_waits_for_gpus_of_the_other_and_says_so(document: Callable[..., Json]) -> None:
    world = World(document(**{**BUDGET, "parameter": {"replicas": 2}}))
    revision = await serving(world)
    p, d = f"llama-parameter-{revision}", f"llama-decode-{revision}"
    recommend(world, 6)
    await world.reconcile()
    assert workloads(world) == {p: 2, d: 6}
    world.roll_out()
    world.edit(**{**BUDGET, "parameter": {"replicas": 5}})
    await world.reconcile()
    assert workloads(world)[p] < 5
    assert "leaves GPUs for" in world.condition("ParameterReady")["message"]
    recommend(world, 1)
    for _ in range(3):
        await world.reconcile()
        world.roll_out()
    assert workloads(world) == {p: 5, d: 1}
    assert await rests(world)


@pytest.mark.parametrize("budget", [{}, {"gpuBudget": 8}])
async def test_a_budget_comes_and_goes_without_costing_a_pod(document: Callable[..., Json], budget: Json) -> None:
    plain = {"parameter": {"replicas": 3}, "decode": {"replicas": 2}}
    world = World(document(**plain, **({"autoscaling": budget} if budget else {})))
    revision = await serving(world)
    for together in ({"gpuBudget": 9}, {}, {"gpuBudget": 7}):
        world.edit(**plain, autoscaling=together)
        await world.reconcile()
        assert workloads(world) == {f"llama-parameter-{revision}": 3, f"llama-decode-{revision}": 2}


async def test_with_recreate_the_new_revision_waits_for_the_last_old_pod(document: Callable[..., Json]) -> None:
    spec = {**BUDGET, "autoscaling": {"gpuBudget": 2}, "rollout": {"strategy": "Recreate"}}
    world = World(document(**spec))
    await serving(world)
    pods = [path for path in world.api.objects if path.startswith(POD.path("ns")) and "router" not in path]
    world.edit(**spec, engine=IMAGE)
    await world.reconcile()
    await world.reconcile()
    assert workloads(world) == {}
    assert "when the remaining pods have ended" in world.condition("Progressing")["message"]
    for path in pods:
        del world.api.objects[path]
    world.sync()
    await world.reconcile()
    assert set(workloads(world).values()) == {1}
    assert len(workloads(world)) == 2
