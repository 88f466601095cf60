"""A change of `spec.mode` is a roll-out: what serves stays until the other mode serves, also if the operator dies."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api import names
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import DEPLOYMENT
from tests.inference.budgeted import SCALED
from tests.inference.scaled import recommend, rests, serving
from tests.inference.sleeping import HELD, IDLE, SLEEPY
from tests.inference.world import World

Json = dict[str, Any]
MODES = ("Disaggregated", "Aggregated")
OF_P = {"services", "networkpolicies", "poddisruptionbudgets", "statefulsets", "pdscalers", "horizontalpodautoscalers"}


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document())


def of_p(world: World) -> set[str]:
    """Kinds of P's children."""
    return {path.split("/")[-2] for path in world.api.objects if "/llama-parameter" in path} - {"pods"}


def routed_to(world: World) -> set[str]:
    """Revisions that router pods send requests to."""
    pods = (body for path, body in world.api.objects.items() if "/pods/llama-router" in path)
    return {pod["metadata"]["labels"][names.LABEL_REVISION] for pod in pods}


def pods_of_p_end(world: World) -> None:
    for path in [path for path in world.api.objects if "/pods/llama-parameter" in path]:
        del world.api.objects[path]
    world.sync()


async def test_d_alone_is_a_complete_revision(world: World) -> None:
    world.edit(mode="Aggregated")
    await serving(world)
    assert of_p(world) == set()
    assert world.condition("Ready")["message"].startswith("Requests are answered; 1 router pod ready.")
    assert world.condition("ParameterReady")["reason"] == "Aggregated"
    assert world.condition("Progressing")["reason"] == "RolloutComplete"
    assert world.status["roles"]["parameter"]["desired"] == 0
    assert {"Pinned", "DecodeComputesPrompts"}.isdisjoint(c["type"] for c in world.status["conditions"])
    assert await rests(world)


@pytest.mark.parametrize("when", ["Serve", "Wait"])
async def test_both_modes_answer_during_a_switch_to_the_other(world: World, when: str) -> None:
    router = {"whenNoPrefill": when}
    world.edit(router=router)
    first = await serving(world)
    for mode in ("Aggregated", "Disaggregated"):
        world.edit(router=router, mode=mode)
        await world.reconcile()
        await world.reconcile()
        assert world.condition("Ready")["message"].startswith("Requests are answered; 1 router pod ready.")
        assert world.condition("Progressing")["reason"] == "RollingOut"
        assert (first in world.revisions(), world.status["servingRevision"]) == (True, first)
        first = await serving(world)


async def test_the_objects_of_p_stay_until_its_last_pod_has_ended(world: World) -> None:
    first = await serving(world)
    world.edit(mode="Aggregated")
    await world.reconcile()
    assert {"statefulsets", "services", "networkpolicies", "poddisruptionbudgets"} == of_p(world)
    assert await serving(world) != first
    assert {"services", "networkpolicies", "poddisruptionbudgets"} == of_p(world), "pods of P still drain"
    pods_of_p_end(world)
    await world.reconcile()
    assert of_p(world) == set()
    assert await rests(world)


@pytest.mark.parametrize("before", MODES)
async def test_an_operator_killed_at_any_write_of_a_switch_continues(world: World, before: str) -> None:
    """The n-th write fails, and the next operator finds what is there; for each n."""
    after = next(mode for mode in MODES if mode != before)
    for write in range(40):
        world.edit(mode=before)
        await serving(world)
        world.edit(mode=after)
        killed = await _killed_at(world, write)
        world.restart()
        assert routed_to(world) <= world.revisions()
        new = await serving(world)
        pods_of_p_end(world)
        await world.reconcile()
        assert world.revisions() == {new}
        assert bool(of_p(world)) == (after == "Disaggregated")
        assert await rests(world)
        if not killed:
            assert write > 3, "the API server was asked"
            return
    raise AssertionError("a switch has fewer writes")


async def _killed_at(world: World, write: int) -> bool:
    """Switch until the n-th write; whether there were so many."""
    writes = [0]
    note = world.api._note

    def counted(verb: str, path: str) -> None:
        note(verb, path)
        if verb != "get" and "/events" not in path:
            writes[0] += 1
            if writes[0] > write:
                raise ApiError(0, "Unreachable", "killed")

    world.api._note = counted  # type: ignore[method-assign]
    for _ in range(3):
        await world.reconcile()
        if writes[0] <= write:
            world.roll_out()
    pods_of_p_end(world)
    await world.reconcile()
    world.api._note = note  # type: ignore[method-assign]
    return writes[0] > write


async def test_counts_of_d_go_over_to_the_other_mode(world: World) -> None:
    spec = {"parameter": SCALED, "decode": SCALED}
    world.edit(**spec)
    await serving(world)
    recommend(world, 4)
    recommend(world, 2, "parameter")
    await serving(world)
    for mode, kinds in (("Aggregated", 1), ("Disaggregated", 2)):
        world.edit(**spec, mode=mode)
        await world.reconcile()
        new = world.status["revision"]
        assert world.api.objects[DEPLOYMENT.path("ns", f"llama-decode-{new}")]["spec"]["replicas"] == 4
        await serving(world)
        assert len(world.api.names("/pdscalers/")) == len(world.api.names("/horizontalpodautoscalers/")) == kinds
        assert await rests(world)


async def test_gpus_of_p_count_until_its_pods_have_ended(world: World) -> None:
    spec = {"autoscaling": {"gpuBudget": 3}, "decode": {"replicas": 2}}
    world.edit(**spec)
    await serving(world)
    world.edit(**spec, mode="Aggregated")
    await world.reconcile()
    assert "needs 2 GPUs, 3 are in use" in world.condition("Progressing")["message"]
    spec["autoscaling"]["gpuBudget"] = 5
    world.edit(**spec, mode="Aggregated")
    await serving(world)


async def test_d_alone_sleeps_and_wakes(world: World) -> None:
    world.edit(mode="Aggregated", decode=SCALED, autoscaling=SLEEPY)
    revision = await serving(world)
    path = DEPLOYMENT.path("ns", f"llama-decode-{revision}")
    world.observe(activity=IDLE)
    await world.reconcile()
    assert world.api.objects[path]["spec"]["replicas"] == 0
    world.roll_out()
    await world.reconcile()
    assert world.condition("Ready")["reason"] == "Asleep"
    world.observe(activity=HELD)
    await world.reconcile()
    assert world.api.objects[path]["spec"]["replicas"] == 1
