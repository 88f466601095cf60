"""Ratio and GPU budget in a reconcile: the HPAs' bounds, roll-outs that wait, and a steady state without writes."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ANNOTATION_GRANT, Role
from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT, POD, STATEFUL_SET
from tests.inference.test_reconcile import World

Json = dict[str, Any]
SCALED = {"autoscaling": {"maxReplicas": 6, "targets": {"kvDemand": 80}}}
BUDGET = {"autoscaling": {"gpuBudget": 8}, "parameter": SCALED, "decode": SCALED}
IMAGE = {"image": "v:2"}


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document(**BUDGET))


def hpa(world: World, role: Role) -> Json:
    found: Json = world.api.objects[AUTOSCALER.path("ns", f"llama-{role}")]
    return found


def maximums(world: World) -> tuple[int, int]:
    p, d = (hpa(world, role)["spec"]["maxReplicas"] for role in (Role.PARAMETER, Role.DECODE))
    return p, d


def workloads(world: World) -> dict[str, int]:
    """Pods of each workload of P and D."""
    kinds = [kind.path("ns") for kind in (STATEFUL_SET, DEPLOYMENT)]
    found = [path for path in world.api.objects if path.startswith(tuple(f"{kind}/" for kind in kinds))]
    return {
        path.rsplit("/", 1)[1]: world.api.objects[path]["spec"]["replicas"] for path in found if "router" not in path
    }


async def serving(world: World) -> str:
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    revision: str = world.status["servingRevision"]
    return revision


def remember_nothing(world: World) -> None:
    """As if the HPAs had had their bounds for a minute."""
    for role in (Role.PARAMETER, Role.DECODE):
        hpa(world, role)["metadata"].get("annotations", {}).pop(ANNOTATION_GRANT, None)
        world.api.put(AUTOSCALER.path("ns", f"llama-{role}"), hpa(world, role))
    world.sync()


async def test_the_hpas_share_the_budget_and_a_second_look_writes_nothing(world: World) -> None:
    await serving(world)
    assert maximums(world) == (4, 4)
    for _ in range(2):
        await world.reconcile()
        assert world.api.writes() == 0
    world.restart()
    await world.reconcile()
    assert world.api.writes() == 0


async def test_what_one_role_lets_go_the_other_gets_after_a_while(world: World) -> None:
    revision = await serving(world)
    world.edit(**{**BUDGET, "parameter": {"autoscaling": {**SCALED["autoscaling"], "maxReplicas": 2}}})
    result = await world.reconcile()
    assert maximums(world) == (2, 4)
    assert hpa(world, Role.PARAMETER)["metadata"]["annotations"][ANNOTATION_GRANT].startswith("4 until ")
    assert result.again_after is not None
    assert 50 < result.again_after < 65
    world.restart()
    await world.reconcile()
    assert world.api.writes() == 0
    remember_nothing(world)
    result = await world.reconcile()
    assert maximums(world) == (2, 6)
    assert result.again_after is None
    assert world.status["servingRevision"] == revision


async def test_a_second_pair_that_fits_starts_when_the_hpas_have_let_go(world: World) -> None:
    first = await serving(world)
    world.edit(**BUDGET, engine=IMAGE)
    await world.reconcile()
    assert maximums(world) == (1, 1)
    assert set(workloads(world)) == {f"llama-parameter-{first}", f"llama-decode-{first}"}
    assert world.condition("Progressing")["reason"] == "GpuBudget"
    remember_nothing(world)
    await world.reconcile()
    second = world.status["revision"]
    assert set(workloads(world).values()) == {1}
    assert len(workloads(world)) == 4
    world.roll_out()
    await world.reconcile()
    await world.reconcile()
    assert world.status["servingRevision"] == second
    for role in (Role.PARAMETER, Role.DECODE):
        moved = hpa(world, role)
        assert moved["spec"]["scaleTargetRef"]["name"] == f"llama-{role}-{second}"
        assert moved["metadata"]["annotations"][ANNOTATION_GRANT].startswith("2 until ")
    world.sync()
    await world.reconcile()
    assert set(workloads(world)) == {f"llama-parameter-{second}", f"llama-decode-{second}"}


async def test_a_second_pair_that_does_not_fit_is_told_once(document: Callable[..., Json]) -> None:
    small = {**BUDGET, "autoscaling": {"gpuBudget": 3}}
    world = World(document(**small))
    first = await serving(world)
    world.edit(**small, engine=IMAGE)
    await world.reconcile()
    told = world.condition("Progressing")
    assert (told["status"], told["reason"]) == ("True", "GpuBudget")
    assert (
        "The new pair needs 2 GPUs, 2 are in use, and spec.autoscaling.gpuBudget is 3. Raise it to 4" in told["message"]
    )
    assert f"Revision {first} keeps answering requests until then." in told["message"]
    assert len(workloads(world)) == 2
    (event,) = [b for p, b in world.api.objects.items() if "/events/" in p and b["reason"] == "GpuBudget"]
    assert event["type"] == "Warning"
    await world.reconcile()
    await world.reconcile()
    assert world.api.writes() == 0


async def test_a_role_that_is_not_autoscaled_gets_more_pods_when_the_hpa_has_let_go(
    document: Callable[..., Json],
) -> None:
    world = World(document(**{**BUDGET, "parameter": {"replicas": 2}}))
    revision = await serving(world)
    leader = f"llama-parameter-{revision}"
    assert workloads(world)[leader] == 2
    assert hpa(world, Role.DECODE)["spec"]["maxReplicas"] == 6
    world.edit(**{**BUDGET, "parameter": {"replicas": 5}})
    await world.reconcile()
    assert workloads(world)[leader] == 2
    assert hpa(world, Role.DECODE)["spec"]["maxReplicas"] == 3
    assert "leaves GPUs for 2" in world.condition("ParameterReady")["message"]
    hpa(world, Role.DECODE)["metadata"]["annotations"].pop(ANNOTATION_GRANT)
    world.api.put(AUTOSCALER.path("ns", "llama-decode"), hpa(world, Role.DECODE))
    world.sync()
    await world.reconcile()
    assert workloads(world)[leader] == 5
    world.edit(**{**BUDGET, "parameter": {"replicas": 1}})
    await world.reconcile()
    assert workloads(world)[leader] == 1
    await world.reconcile()
    await world.reconcile()
    assert world.api.writes() == 0


@pytest.mark.parametrize("budget", [{}, {"gpuBudget": 8}])
async def test_a_budget_comes_and_goes_without_costing_a_pod(document: Callable[..., Json], budget: Json) -> None:
    plain = {"parameter": {"replicas": 3}, "decode": {"replicas": 2}}
    world = World(document(**plain, **({"autoscaling": budget} if budget else {})))
    revision = await serving(world)
    for together in ({"gpuBudget": 9}, {}, {"gpuBudget": 7}):
        world.edit(**plain, autoscaling=together)
        await world.reconcile()
        assert workloads(world) == {f"llama-parameter-{revision}": 3, f"llama-decode-{revision}": 2}


async def test_with_recreate_the_new_pair_waits_for_the_last_old_pod(document: Callable[..., Json]) -> None:
    spec = {**BUDGET, "autoscaling": {"gpuBudget": 2}, "rollout": {"strategy": "Recreate"}}
    world = World(document(**spec))
    await serving(world)
    pods = [path for path in world.api.objects if path.startswith(POD.path("ns")) and "router" not in path]
    world.edit(**spec, engine=IMAGE)
    await world.reconcile()
    await world.reconcile()
    assert workloads(world) == {}
    assert "when the pods that are still there are gone" in world.condition("Progressing")["message"]
    for path in pods:
        del world.api.objects[path]
    world.sync()
    await world.reconcile()
    assert set(workloads(world).values()) == {1}
    assert len(workloads(world)) == 2
