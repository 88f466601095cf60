"""Autoscalers recommend, only the operator writes replica counts, and counts do not flap."""

from collections.abc import Callable

import pytest

from pdinference.api.names import Role
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import AUTOSCALER, STATEFUL_SET
from pdinference.planning.scaling.condition import MeasuredLoad
from tests.inference.scaled import GROUPS, SCALED, TARGET, Json, count, decode, recommend, recommended, rests, serving
from tests.inference.world import World

HPA = AUTOSCALER.path("ns", "llama-decode")


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document(decode=SCALED))


def leader(revision: str) -> str:
    return STATEFUL_SET.path("ns", f"llama-parameter-{revision}")


def worker(revision: str, rank: int) -> str:
    return STATEFUL_SET.path("ns", f"llama-node{rank}-{revision}")


def groups(world: World, revision: str) -> list[int]:
    """How many pods each node rank has."""
    paths = [leader(revision), worker(revision, 1), worker(revision, 2)]
    return [world.api.objects[path]["spec"]["replicas"] for path in paths]


async def test_scale_target_and_hpa_exist_from_the_start_and_change_nothing(world: World) -> None:
    await world.reconcile()
    first = world.status["revision"]
    assert (count(world, first), recommended(world)) == (2, 2)
    target = world.api.objects[HPA]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("PDScaler", "llama-decode")
    await serving(world)
    assert (count(world, first), await rests(world)) == (2, True)
    status = world.api.objects[TARGET]["status"]
    assert (status["replicas"], status["revision"]) == (2, first)
    assert status["selector"].endswith(f"revision={first}")
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Limited", "False")]


async def test_a_recommended_count_is_allocated_and_stays(world: World) -> None:
    first = await serving(world)
    recommend(world, 5)
    await world.reconcile()
    assert (count(world, first), world.status["roles"]["decode"]["desired"]) == (5, 5)
    await world.reconcile()
    assert world.api.objects[TARGET]["status"]["replicas"] == 5
    assert await rests(world)
    assert (recommended(world), count(world, first)) == (5, 5)


async def test_a_count_changed_by_hand_is_corrected(world: World) -> None:
    first = await serving(world)
    for pods in (0, 4):
        world.api.scale(decode(first), pods)
        world.sync()
        await world.reconcile()
        assert count(world, first) == 2


async def test_a_recommendation_beyond_the_range_is_limited_and_says_so(world: World) -> None:
    first = await serving(world)
    recommend(world, 9)
    await world.reconcile()
    await world.reconcile()
    (limited,) = world.api.objects[TARGET]["status"]["conditions"]
    assert (count(world, first), limited["status"], limited["reason"]) == (6, "True", "TooManyReplicas")
    assert "maxReplicas is 6" in limited["message"]


async def test_a_recommendation_that_was_taken_out_comes_back(world: World) -> None:
    first = await serving(world)
    recommend(world, 4)
    await world.reconcile()
    del world.api.objects[TARGET]["spec"]["replicas"]
    world.api.put(TARGET, world.api.objects[TARGET])
    world.sync()
    await world.reconcile()
    assert (recommended(world), count(world, first)) == (4, 4)


@pytest.mark.parametrize("refused", [TARGET, HPA, "decode"])
async def test_autoscaling_turned_on_costs_no_pod_also_when_a_write_fails(
    document: Callable[..., Json], refused: str
) -> None:
    world = World(document(decode={"replicas": 4}))
    first = await serving(world)
    world.edit(decode={**SCALED, "replicas": 2})
    world.api.fail("apply", decode(first) if refused == "decode" else refused, ApiError(0, "Unreachable", "killed"))
    for _ in range(3):
        await world.reconcile()
        assert count(world, first) == 4
    assert (recommended(world), world.status["revision"]) == (4, first)


async def test_an_hpa_is_created_once_its_pods_have_been_read(document: Callable[..., Json]) -> None:
    """Otherwise it emits warnings about metrics that exist some seconds later. An HPA that exists stays."""
    world = World(document(decode={"replicas": 2}))
    await serving(world)
    world.edit(decode=SCALED)
    world.observe(load=MeasuredLoad(unread=frozenset({Role.DECODE})))
    await world.reconcile()
    assert HPA not in world.api.objects
    (autoscaling,) = [one for one in world.status["conditions"] if one["type"] == "Autoscaling"]
    assert (autoscaling["status"], autoscaling["reason"]) == ("Unknown", "Starting")
    world.observe(load=MeasuredLoad())
    await world.reconcile()
    assert HPA in world.api.objects
    world.observe(load=MeasuredLoad(unread=frozenset({Role.DECODE})))
    await world.reconcile()
    assert HPA in world.api.objects


async def test_autoscaling_turned_off_makes_replicas_count_again(world: World) -> None:
    first = await serving(world)
    recommend(world, 5)
    await world.reconcile()
    world.edit(decode={"replicas": 3})
    await world.reconcile()
    assert not {HPA, TARGET} & set(world.api.objects)
    assert count(world, first) == 3
    assert not [c for c in world.status["conditions"] if c["type"] == "Autoscaling"]


async def test_both_revisions_of_a_roll_out_follow_the_recommendation(world: World) -> None:
    first = await serving(world)
    recommend(world, 5)
    await world.reconcile()
    world.edit(decode=SCALED, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    assert (count(world, first), count(world, second)) == (5, 5)
    recommend(world, 6)
    await world.reconcile()
    assert (count(world, first), count(world, second)) == (6, 6)
    await world.reconcile()
    assert world.api.objects[TARGET]["status"]["revision"] == first
    assert await rests(world)
    world.roll_out()
    await world.reconcile()
    await world.reconcile()
    assert world.api.objects[TARGET]["status"]["revision"] == second
    recommend(world, 3)
    await world.reconcile()
    assert (count(world, second), world.revisions()) == (3, {second})


async def test_a_roll_out_that_ended_without_an_operator_is_noticed(world: World) -> None:
    await serving(world)
    world.edit(decode=SCALED, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    world.roll_out()
    world.edit(decode=SCALED, engine={"image": "v:3"})
    world.restart()
    await world.reconcile()
    await world.reconcile()
    assert world.status["servingRevision"] == world.api.objects[TARGET]["status"]["revision"] == second
    assert world.status["revision"] not in {"", second}


async def test_recreate_starts_the_new_revision_with_the_recommended_count(document: Callable[..., Json]) -> None:
    world = World(document(decode=SCALED, rollout={"strategy": "Recreate"}))
    await serving(world)
    recommend(world, 5)
    await world.reconcile()
    world.edit(decode=SCALED, rollout={"strategy": "Recreate"}, engine={"image": "v:2"})
    await world.reconcile()
    second = world.status["revision"]
    assert world.revisions() == {second}
    for _ in range(2):
        await world.reconcile()
        world.roll_out()
    assert count(world, second) == 5


async def test_zero_stops_the_role_and_more_starts_it_again(world: World) -> None:
    first = await serving(world)
    recommend(world, 5)
    await world.reconcile()
    world.edit(decode={**SCALED, "replicas": 0})
    await world.reconcile()
    assert not {HPA, TARGET} & set(world.api.objects)
    assert count(world, first) == 0
    world.edit(decode={**SCALED, "replicas": 3})
    await world.reconcile()
    assert count(world, first) == 3


async def test_without_a_router_the_target_revision_is_scaled(document: Callable[..., Json]) -> None:
    world = World(document(decode=SCALED, router={"replicas": 0}))
    await world.reconcile()
    recommend(world, 4)
    await world.reconcile()
    assert count(world, world.status["revision"]) == 4


async def test_an_event_says_from_what_load_a_count_follows(world: World) -> None:
    await serving(world)
    external = world.api.objects[HPA]["spec"]["metrics"][0]["external"]
    condition = [
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"},
        {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"},
        {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"},
    ]
    current = [{"type": "External", "external": {"metric": external["metric"], "current": {"averageValue": "1234m"}}}]
    looked = {"conditions": condition, "currentMetrics": current, "currentReplicas": 2, "desiredReplicas": 6}
    world.api.put(HPA, {**world.api.objects[HPA], "status": looked})
    recommend(world, 6)
    await world.reconcile()
    assert world.status["roles"]["decode"]["scaling"] == "kvDemand 120%/80%; 1-6 pods"
    autoscaling = world.condition("Autoscaling")
    assert (autoscaling["status"], autoscaling["reason"]) == ("True", "TooManyReplicas")
    (event,) = [b for p, b in world.api.objects.items() if "/events/" in p and b["reason"] == "ScaledUp"]
    assert event["note"] == "decode: 2 to 6 pods. Load per pod/target: kvDemand 120%/80%."


async def test_an_event_of_a_count_that_a_person_recommended_has_no_load(world: World) -> None:
    await serving(world)
    recommend(world, 5)
    await world.reconcile()
    (event,) = [b for p, b in world.api.objects.items() if "/events/" in p and b["reason"] == "ScaledUp"]
    assert event["note"] == "decode: 2 to 5 pods."


async def test_the_baseline_latency_outlives_the_operator(world: World) -> None:
    first = await serving(world)
    world.observe(load=MeasuredLoad(baselines={first: 0.01}))
    await world.reconcile()
    assert world.api.objects[TARGET]["status"]["baselineInterTokenMicroseconds"] == 10_000
    world.restart()
    for seen in ({}, {first: 0.03}, {first: 0.0099}):
        world.observe(load=MeasuredLoad(baselines=seen))
        await world.reconcile()
        assert world.api.writes() == 0


class TestPOfSeveralNodes:
    """A count is one of instances: the worker nodes get that of their leader."""

    @pytest.fixture
    def world(self, document: Callable[..., Json]) -> World:
        return World(document(parameter=GROUPS))

    async def test_all_nodes_start_alike_and_follow_the_recommendation(self, world: World) -> None:
        first = await serving(world)
        assert groups(world, first) == [2, 2, 2]
        for pods in (5, 3):
            recommend(world, pods, "parameter")
            await world.reconcile()
            assert groups(world, first) == [pods] * 3
            await world.reconcile()
            assert await rests(world)

    async def test_a_node_scaled_by_hand_is_corrected(self, world: World) -> None:
        first = await serving(world)
        world.api.scale(worker(first, 2), 7)
        world.sync()
        await world.reconcile()
        assert groups(world, first) == [2, 2, 2]

    async def test_both_revisions_of_a_roll_out_keep_whole_instances(self, world: World) -> None:
        first = await serving(world)
        world.edit(parameter=GROUPS, engine={"image": "v:2"})
        await world.reconcile()
        second = world.status["revision"]
        recommend(world, 4, "parameter")
        await world.reconcile()
        assert (groups(world, first), groups(world, second)) == ([4, 4, 4], [4, 4, 4])
        await world.reconcile()
        assert await rests(world)

    async def test_a_refused_count_is_reported_and_tried_again(self, world: World) -> None:
        first = await serving(world)
        recommend(world, 4, "parameter")
        world.api.fail("merge", worker(first, 1), ApiError(403, "Forbidden", "quota"))
        result = await world.reconcile()
        assert result.retry
        assert "quota" in world.condition("Progressing")["message"]
        assert groups(world, first) == [4, 2, 4]
        await world.reconcile()
        assert groups(world, first) == [4, 4, 4]
