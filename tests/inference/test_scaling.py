"""Replicas belong to the HPA of the revision that serves; the operator counts everything else, and nothing flaps."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ANNOTATION_PACE, REPLICAS_MANAGER
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT, STATEFUL_SET
from pdinference.planning.scaling.condition import Measured
from tests.inference.test_reconcile import World

Json = dict[str, Any]
SCALED = {"replicas": 2, "autoscaling": {"maxReplicas": 6, "targets": {"kvDemand": 80}}}
HPA = AUTOSCALER.path("ns", "llama-decode")
PARALLELISM = {"pipeline": 3, "nodes": 3}
GROUPS = {**SCALED, "parallelism": PARALLELISM}


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document(decode=SCALED))


def decode(revision: str) -> str:
    return DEPLOYMENT.path("ns", f"llama-decode-{revision}")


def leader(revision: str) -> str:
    return STATEFUL_SET.path("ns", f"llama-parameter-{revision}")


def node(revision: str, rank: int) -> str:
    return STATEFUL_SET.path("ns", f"llama-node{rank}-{revision}")


def groups(world: World, revision: str) -> list[int]:
    """How many pods each node rank has."""
    paths = [leader(revision), node(revision, 1), node(revision, 2)]
    return [world.api.objects[path]["spec"]["replicas"] for path in paths]


def count(world: World, revision: str) -> int:
    found: int = world.api.objects[decode(revision)]["spec"]["replicas"]
    return found


def follows(world: World) -> str:
    name: str = world.api.objects[HPA]["spec"]["scaleTargetRef"]["name"]
    return name.rsplit("-", 1)[1]


def hpa_scales(world: World, revision: str, pods: int) -> None:
    world.api.scale(decode(revision), pods)
    world.sync()


async def serving(world: World) -> str:
    await world.reconcile()
    world.roll_out()
    await world.reconcile()
    revision: str = world.status["servingRevision"]
    assert revision == world.status["revision"]
    return revision


async def test_a_workload_starts_with_replicas_and_gets_its_hpa_when_it_serves(world: World) -> None:
    await world.reconcile()
    first = world.status["revision"]
    assert count(world, first) == 2
    assert HPA not in world.api.objects
    assert world.condition("Autoscaling")["status"] == "Unknown"
    await serving(world)
    assert follows(world) == first
    await world.reconcile()
    await world.reconcile()
    assert world.api.requests.total() == 0


async def test_what_the_hpa_decides_stays(world: World) -> None:
    first = await serving(world)
    hpa_scales(world, first, 5)
    await world.reconcile()
    assert world.status["roles"]["decode"]["desired"] == 5
    await world.reconcile()
    assert world.api.writes() == 0
    world.restart()
    await world.reconcile()
    assert (world.api.writes(), count(world, first)) == (0, 5)


async def test_it_stays_when_the_rest_of_the_workload_is_put_right(world: World) -> None:
    first = await serving(world)
    hpa_scales(world, first, 5)
    world.api.objects[decode(first)]["spec"]["revisionHistoryLimit"] = 9
    world.api.put(decode(first), world.api.objects[decode(first)])
    world.sync()
    await world.reconcile()
    assert world.api.objects[decode(first)]["spec"]["revisionHistoryLimit"] == 1
    assert count(world, first) == 5


@pytest.mark.parametrize("killed_at", [0, 1, 2])
async def test_autoscaling_can_be_turned_on_without_losing_a_pod(document: Callable[..., Json], killed_at: int) -> None:
    """The manifest loses `replicas`, and the API server would fill in 1; also when the operator dies at a write."""
    world = World(document(decode={"replicas": 4}))
    first = await serving(world)
    world.edit(decode={**SCALED, "replicas": 4})
    seen = []
    if killed_at:
        world.api.fail("apply", decode(first), *[ApiError(0, "Unreachable", "killed")] * killed_at)
    for _ in range(killed_at + 1):
        await world.reconcile()
        seen.append(count(world, first))
    assert set(seen) == {4}
    entries = world.api.objects[decode(first)]["metadata"]["managedFields"]
    assert [entry["manager"] for entry in entries] == [REPLICAS_MANAGER]
    assert world.status["revision"] == first
    assert follows(world) == first


async def test_autoscaling_can_be_turned_off(world: World) -> None:
    first = await serving(world)
    hpa_scales(world, first, 5)
    world.edit(decode={"replicas": 3})
    await world.reconcile()
    assert HPA not in world.api.objects
    assert count(world, first) == 3
    assert not [c for c in world.status["conditions"] if c["type"] == "Autoscaling"]


async def test_a_new_revision_starts_with_as_many_pods_as_serve(world: World) -> None:
    first = await serving(world)
    hpa_scales(world, first, 5)
    world.edit(decode=SCALED, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    assert (count(world, second), follows(world)) == (5, first)


async def test_it_keeps_up_while_it_starts_and_the_hpa_moves_with_the_traffic(world: World) -> None:
    first = await serving(world)
    world.edit(decode=SCALED, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    hpa_scales(world, first, 6)
    await world.reconcile()
    assert (count(world, second), follows(world)) == (6, first)
    await world.reconcile()
    assert world.api.writes() == 0
    world.roll_out()
    await world.reconcile()
    assert (count(world, second), follows(world)) == (6, second)
    hpa_scales(world, second, 3)
    await world.reconcile()
    await world.reconcile()
    assert count(world, second) == 3


async def test_a_restart_in_the_middle_changes_nothing(world: World) -> None:
    first = await serving(world)
    hpa_scales(world, first, 5)
    world.edit(decode=SCALED, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    world.restart()
    await world.reconcile()
    assert (count(world, second), follows(world), world.api.writes()) == (5, first, 0)


async def test_a_roll_out_that_ends_while_the_operator_is_away_is_noticed_although_the_next_one_begins(
    world: World,
) -> None:
    await serving(world)
    world.edit(decode=SCALED, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    world.roll_out()
    world.edit(decode=SCALED, engine={"image": "v:3"})
    world.restart()
    await world.reconcile()
    assert (world.status["servingRevision"], follows(world)) == (second, second)
    assert world.status["revision"] not in {"", second}


async def test_recreate_hands_the_number_of_pods_on_too(document: Callable[..., Json]) -> None:
    world = World(document(decode=SCALED, rollout={"strategy": "Recreate"}))
    first = await serving(world)
    hpa_scales(world, first, 5)
    world.edit(decode=SCALED, rollout={"strategy": "Recreate"}, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    assert world.revisions() == {second}
    assert count(world, second) == 5
    await world.reconcile()
    assert count(world, second) == 5


async def test_zero_stops_the_role_and_more_starts_it_again(world: World) -> None:
    first = await serving(world)
    hpa_scales(world, first, 5)
    world.edit(decode={**SCALED, "replicas": 0})
    await world.reconcile()
    assert HPA not in world.api.objects
    assert count(world, first) == 0
    world.edit(decode={**SCALED, "replicas": 3})
    await world.reconcile()
    assert count(world, first) == 3  # an HPA would leave a workload without pods alone


async def test_somebody_who_takes_all_pods_away_is_corrected(world: World) -> None:
    first = await serving(world)
    hpa_scales(world, first, 0)
    await world.reconcile()
    assert count(world, first) == 2


@pytest.mark.parametrize(("replicas", "limits", "pods"), [(1, (3, 6), 3), (9, (1, 6), 6)])
async def test_the_first_count_keeps_to_the_limits(
    document: Callable[..., Json], replicas: int, limits: tuple[int, int], pods: int
) -> None:
    scaling = {"minReplicas": limits[0], "maxReplicas": limits[1]}
    world = World(document(decode={"replicas": replicas, "autoscaling": scaling}))
    await world.reconcile()
    assert count(world, world.status["revision"]) == pods


async def test_without_a_router_the_wanted_revision_is_followed(document: Callable[..., Json]) -> None:
    world = World(document(decode=SCALED, router={"replicas": 0}))
    await world.reconcile()
    await world.reconcile()
    assert follows(world) == world.status["revision"]


@pytest.mark.parametrize("invalid", [{}, {"engine": {"args": {"no-such-option": 1}}}])
async def test_scaling_is_told(world: World, invalid: Json) -> None:
    first = await serving(world)
    external = world.api.objects[HPA]["spec"]["metrics"][0]["external"]
    condition = [
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"},
        {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"},
        {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"},
    ]
    current = [{"type": "External", "external": {"metric": external["metric"], "current": {"averageValue": "1234m"}}}]
    looked = {"conditions": condition, "currentMetrics": current, "currentReplicas": 2}

    def hpa_tells(desired: int) -> None:
        world.api.put(HPA, {**world.api.objects[HPA], "status": {**looked, "desiredReplicas": desired}})
        world.sync()

    hpa_tells(2)
    world.edit(decode=SCALED, **invalid)
    await world.reconcile()
    hpa_scales(world, first, 6)
    result = await world.reconcile()
    assert world.status["roles"]["decode"]["desired"] == 2, "the HPA is about to say why"
    assert result.again_after is not None
    hpa_tells(6)
    await world.reconcile()
    assert world.status["roles"]["decode"]["scaling"] == "kvDemand 120%/80%; 1-6 pods"
    assert world.condition("Autoscaling")["status"] == "True"
    assert world.condition("Autoscaling")["reason"] == "TooManyReplicas"
    (event,) = [b for p, b in world.api.objects.items() if "/events/" in p and b["reason"] == "ScaledUp"]
    assert event["note"] == "decode: 2 to 6 pods. Load of a pod/target was kvDemand 120%/80%."


async def test_the_pace_of_idle_pods_outlives_the_operator(world: World) -> None:
    first = await serving(world)
    world.measured = Measured(paces={first: 0.01})
    await world.reconcile()
    assert world.api.objects[HPA]["metadata"]["annotations"][ANNOTATION_PACE] == f"0.01 seconds a token in {first}"
    world.restart()
    for seen in ({}, {first: 0.03}, {first: 0.0099}):
        world.measured = Measured(paces=seen)
        await world.reconcile()
        assert world.api.writes() == 0


async def test_of_an_invalid_spec_pods_and_range_are_told_as_they_are(world: World) -> None:
    first = await serving(world)
    world.edit(decode=SCALED, engine={"args": {"no-such-option": 1}})
    hpa_scales(world, first, 5)
    await world.reconcile()
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert (world.status["roles"]["decode"]["desired"], world.status["roles"]["decode"]["scaling"]) == (
        5,
        "kvDemand ?/80%; 1-6 pods",
    )
    assert world.condition("Autoscaling")["message"].endswith("targets and range stay as they were.")
    assert (count(world, first), follows(world)) == (5, first)
    await world.reconcile()
    assert world.api.writes() == 0


async def test_of_an_invalid_spec_a_roll_out_that_ends_is_told_and_that_nothing_scales_what_serves(
    world: World,
) -> None:
    first = await serving(world)
    world.edit(decode=SCALED, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    world.edit(decode=SCALED, engine={"args": {"no-such-option": 1}})
    await world.reconcile()
    assert world.status["servingRevision"] == first
    assert world.condition("Autoscaling")["status"] == "Unknown", "its HPA has not looked yet"
    world.roll_out()
    await world.reconcile()
    assert (world.status["servingRevision"], follows(world)) == (second, first)
    told = world.condition("Autoscaling")
    assert (told["status"], told["reason"]) == ("False", "InvalidSpec")
    assert f"Requests go to revision {second}" in told["message"]
    world.edit(decode=SCALED, engine={"image": "v:2"})
    await world.reconcile()
    assert follows(world) == second


async def test_what_a_person_scaled_is_told_without_a_load(world: World) -> None:
    first = await serving(world)
    external = world.api.objects[HPA]["spec"]["metrics"][0]["external"]
    current = [{"type": "External", "external": {"metric": external["metric"], "current": {"averageValue": "800m"}}}]
    sees = [{"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}]
    looked = {"conditions": sees, "currentMetrics": current, "currentReplicas": 2, "desiredReplicas": 2}
    world.api.put(HPA, {**world.api.objects[HPA], "status": looked})
    world.sync()
    await world.reconcile()
    hpa_scales(world, first, 5)
    await world.reconcile()
    world.later(2)
    await world.reconcile()
    (event,) = [b for p, b in world.api.objects.items() if "/events/" in p and b["reason"] == "ScaledUp"]
    assert event["note"] == "decode: 2 to 5 pods."


class TestPOfSeveralNodes:
    """An HPA scales the first node of all instances; the further ones belong to the same instances."""

    @pytest.fixture
    def world(self, document: Callable[..., Json]) -> World:
        return World(document(parameter=GROUPS))

    async def test_all_nodes_start_alike(self, world: World) -> None:
        await world.reconcile()
        assert groups(world, world.status["revision"]) == [2, 2, 2]

    async def test_further_nodes_follow_the_first_one(self, world: World) -> None:
        first = await serving(world)
        for pods in (5, 3):
            world.api.scale(leader(first), pods)
            world.sync()
            await world.reconcile()
            assert groups(world, first) == [pods] * 3
            await world.reconcile()
            assert world.api.writes() == 0

    async def test_they_follow_while_the_stored_spec_is_invalid_also_in_the_middle_of_a_roll_out(
        self, world: World
    ) -> None:
        first = await serving(world)
        world.edit(parameter=GROUPS, engine={"image": "v:2"})
        await world.reconcile()
        second = world.status["revision"]
        world.edit(parameter=GROUPS, engine={"args": {"no-such-option": 1}})
        for pods in (5, 1):
            world.api.scale(leader(first), pods)
            world.restart()
            await world.reconcile()
            assert world.condition("Progressing")["reason"] == "InvalidSpec"
            assert (groups(world, first), groups(world, second)) == ([pods] * 3, [2] * 3)
            await world.reconcile()
            assert world.api.writes() == 0

    async def test_of_an_invalid_spec_a_write_that_failed_is_tried_again(self, world: World) -> None:
        first = await serving(world)
        world.edit(parameter=GROUPS, engine={"args": {"no-such-option": 1}})
        world.api.scale(leader(first), 3)
        world.sync()
        world.api.fail("apply", node(first, 2), ApiError(0, "Unreachable", "killed"))
        assert (await world.reconcile()).retry
        assert not (await world.reconcile()).retry
        assert groups(world, first) == [3] * 3

    async def test_they_are_put_right_when_somebody_else_counts_them(self, world: World) -> None:
        first = await serving(world)
        world.api.scale(node(first, 2), 7)
        world.sync()
        await world.reconcile()
        assert groups(world, first) == [2, 2, 2]

    async def test_they_follow_while_a_new_revision_starts(self, world: World) -> None:
        first = await serving(world)
        world.edit(parameter=GROUPS, engine={"image": "v:2"})
        await world.reconcile()
        second = world.status["revision"]
        world.api.scale(leader(first), 4)
        world.sync()
        await world.reconcile()
        assert (groups(world, first), groups(world, second)) == ([4, 4, 4], [4, 4, 4])
        await world.reconcile()
        assert world.api.writes() == 0

    async def test_a_refused_count_is_told_and_tried_again(self, world: World) -> None:
        first = await serving(world)
        world.edit(parameter=GROUPS, engine={"image": "v:2"})
        await world.reconcile()
        world.api.scale(leader(first), 4)
        world.sync()
        world.api.fail("apply", node(first, 1), ApiError(403, "Forbidden", "quota"))
        result = await world.reconcile()
        assert result.retry
        assert "quota" in world.condition("Progressing")["message"]
        assert groups(world, first) == [4, 2, 4]
        await world.reconcile()
        assert groups(world, first) == [4, 4, 4]

    async def test_autoscaling_can_be_turned_on_and_off(self, document: Callable[..., Json]) -> None:
        world = World(document(parameter={"replicas": 3, "parallelism": PARALLELISM}))
        first = await serving(world)
        world.edit(parameter={**GROUPS, "replicas": 3})
        await world.reconcile()
        assert groups(world, first) == [3, 3, 3]
        world.api.scale(leader(first), 5)
        world.sync()
        world.edit(parameter={"replicas": 2, "parallelism": PARALLELISM})
        await world.reconcile()
        assert groups(world, first) == [2, 2, 2]
