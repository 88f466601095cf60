"""A resource without requests has no pods, and gets them back with the next request, without flapping."""

from collections.abc import Callable

import pytest

from pdinference.cluster.kinds import DEPLOYMENT, SCALER, STATEFUL_SET
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from tests.inference.scaled import recommend
from tests.inference.sleeping import (
    BUSY,
    HELD,
    NODES,
    SCALED,
    SLEEPY,
    Json,
    asleep,
    counts,
    no_requests,
    serving,
    take_pods_away,
)
from tests.inference.world import ROUTER, World


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document(parameter=NODES, decode=SCALED, autoscaling=SLEEPY))


def looked_at(world: World, **status: int) -> None:
    """Kubernetes reports this state of the router's pods."""
    router = world.api.objects[ROUTER]
    router["status"] |= status
    world.api.put(ROUTER, router)
    live = world.api.objects[ROUTER]
    live["status"]["observedGeneration"] = live["metadata"]["generation"]
    world.sync()


def events(world: World) -> list[str]:
    return [body["reason"] for path, body in world.api.objects.items() if "/events/" in path]


async def test_a_resource_without_requests_falls_asleep_and_rests(world: World) -> None:
    await asleep(world)
    await world.reconcile()
    await world.reconcile()
    assert world.api.requests.total() == 0
    assert len(world.api.names("/horizontalpodautoscalers/")) == 2, "they only recommend"
    assert "FellAsleep" in events(world)
    assert "NotReady" not in events(world)


async def test_asleep_the_recommendation_is_the_minimum_with_which_it_wakes(world: World) -> None:
    await serving(world)
    for role in ("parameter", "decode"):
        recommend(world, 5, role)
    await world.reconcile()
    assert counts(world) == [5, 5, 5]
    await no_requests(world)
    for path in (SCALER.path("ns", f"llama-{role}") for role in ("parameter", "decode")):
        target = world.api.objects[path]
        assert (target["spec"]["replicas"], target["status"]["replicas"]) == (2, 0)
        assert target["status"]["conditions"][0]["reason"] == "Asleep"
    world.observe(activity=HELD)
    await world.reconcile()
    assert counts(world) == [2, 2, 2]


async def test_an_asleep_resource_has_no_warnings_in_its_status(world: World) -> None:
    await asleep(world)
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("True", "Asleep")
    assert world.condition("ParameterReady")["reason"] == world.condition("DecodeReady")["reason"] == "Asleep"
    assert world.condition("Autoscaling")["reason"] == "Asleep"
    assert world.condition("Progressing")["reason"] == "RolloutComplete"
    assert world.status["roles"]["decode"]["summary"] == "0/0"


async def test_a_request_that_waits_starts_as_many_pods_as_there_must_be(world: World) -> None:
    await asleep(world)
    world.observe(activity=HELD)
    await world.reconcile()
    assert counts(world) == [2, 2, 2]
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Autoscaling")["status"] == "Unknown"
    assert "WokeUp" in events(world)
    assert not {"NotReady", "AutoscalingInactive"} & set(events(world))
    await world.reconcile()
    await world.reconcile()
    assert world.api.requests.total() == 0, "while the pods start, the request still waits"
    world.observe(activity=BUSY)
    world.roll_out()
    await world.reconcile()
    assert world.condition("Ready")["reason"] == "Serving"
    assert counts(world) == [2, 2, 2]


async def test_a_request_that_goes_away_while_the_pods_start_does_not_stop_them(world: World) -> None:
    await asleep(world)
    world.observe(activity=HELD)
    await world.reconcile()
    world.observe(activity=BUSY)
    await world.reconcile()
    assert counts(world) == [2, 2, 2]


async def test_terminating_pods_do_not_make_a_waking_resource_ready(world: World) -> None:
    await serving(world)
    await no_requests(world)
    for path in [p for p in world.api.objects if "/pods/" in p and "/pods/llama-router" not in p]:
        pod = world.api.objects[path]
        world.api.put(path, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-21T00:00:00Z"}})
    world.sync()
    world.observe(activity=HELD)
    await world.reconcile()
    assert world.condition("Ready")["status"] == "False"


async def test_blindness_neither_sends_to_sleep_nor_wakes(world: World) -> None:
    world.observe(activity=None)
    await serving(world)
    assert counts(world) == [3, 3, 3]
    await asleep(world)
    world.observe(activity=None)
    await world.reconcile()
    assert counts(world) == [0, 0, 0]
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("Unknown", "Asleep")
    await world.reconcile()
    assert world.api.requests.total() == 0


async def test_routers_that_do_not_report_are_mentioned(world: World) -> None:
    world.observe(activity=None)
    await serving(world)
    assert "Router pods do not report" in world.condition("Autoscaling")["message"]
    world.observe(activity=BUSY)
    await world.reconcile()
    assert "Router pods do not report" not in world.condition("Autoscaling")["message"]


async def test_a_restarted_operator_lets_it_sleep(world: World) -> None:
    await asleep(world)
    world.restart()
    await world.reconcile()
    assert world.api.writes() == 0
    assert counts(world) == [0, 0, 0]


async def test_a_change_of_the_spec_during_sleep_starts_no_old_revision(world: World) -> None:
    await asleep(world)
    first = world.status["revision"]
    world.edit(engine={"seed": 7})
    for _ in range(2):
        recommend(world, 4)
        await world.reconcile()
        assert world.api.objects[DEPLOYMENT.path("ns", f"llama-decode-{first}")]["spec"]["replicas"] == 0
    assert world.status["revision"] != first


async def test_fewer_router_pods_start_nothing(world: World) -> None:
    world.edit(router={"replicas": 2})
    await asleep(world)
    before = len(events(world))
    world.edit(router={"replicas": 1})
    await world.reconcile()
    assert world.condition("Ready")["reason"] == "Asleep"
    deployment = world.api.objects[ROUTER]
    assert (deployment["spec"]["replicas"], deployment["status"]["replicas"]) == (1, 2)
    looked_at(world)
    await world.reconcile()
    assert counts(world) == [0, 0, 0]
    assert "WokeUp" not in events(world)[before:]


async def test_an_additional_router_pod_wakes_p_and_d(world: World) -> None:
    await asleep(world)
    world.edit(router={"replicas": 2})
    await world.reconcile()
    looked_at(world, replicas=2, updatedReplicas=2, availableReplicas=1)
    await world.reconcile()
    assert counts(world) == [2, 2, 2]


async def test_without_scale_to_zero_readiness_follows_the_pods(world: World) -> None:
    """Its old router pods are all the time, because requests may wait in them."""
    await asleep(world)
    world.edit(autoscaling=None)
    await world.reconcile()
    assert counts(world) == [2, 2, 2]
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Starting")
    assert "WokeUp" in events(world)
    world.roll_out()
    await world.reconcile()
    assert world.condition("Ready")["reason"] == "Serving"


async def test_a_changed_revision_starts_and_sleeps_without_requests(world: World) -> None:
    await asleep(world)
    world.edit(engine={"seed": 7})
    await world.reconcile()
    assert counts(world) == [3, 3, 3]
    world.roll_out()
    await world.reconcile()
    await world.reconcile()
    assert counts(world) == [0, 0, 0]


async def test_a_router_pod_that_was_never_ready_wakes_p_and_d(world: World) -> None:
    """A node with the router's pod went away, say: the new one would not get ready without P and D."""
    await asleep(world)
    looked_at(world, availableReplicas=0, readyReplicas=0)
    await world.reconcile()
    assert counts(world) == [2, 2, 2]


async def test_a_ready_router_alone_is_not_called_ready(world: World) -> None:
    """Requests wait in it, unless D computes their prompts."""
    await serving(world)
    world.observe(activity=BUSY)
    for pods, status in (("llama-parameter", "True"), ("llama-decode", "False")):
        for path in [p for p in world.api.objects if f"/pods/{pods}" in p]:
            del world.api.objects[path]
        world.sync()
        await world.reconcile()
        assert world.condition("Ready")["status"] == status, pods


async def test_a_resource_is_reconciled_when_it_may_sleep(world: World) -> None:
    await serving(world)
    world.observe(activity=ReportedActivity(held=False, idle_seconds=880))
    assert (await world.reconcile()).requeue_after == 20


async def test_zero_replicas_stop_the_role_and_no_request_starts_it(document: Callable[..., Json]) -> None:
    world = World(document(parameter=NODES, decode={**SCALED, "replicas": 0}, autoscaling=SLEEPY))
    world.observe(activity=HELD)
    for _ in range(2):
        await world.reconcile()
        world.roll_out()
    await world.reconcile()
    assert counts(world)[0] == 0
    assert world.condition("DecodeReady")["reason"] == "ScaledToZero"


async def test_a_stopped_resource_with_ready_old_router_pods_is_not_ready(world: World) -> None:
    """Requests may wait in them, and new ones do not get ready without P and D."""
    await serving(world)
    world.edit(decode={**SCALED, "replicas": 0})
    await world.reconcile()
    for path in [path for path in world.api.objects if "/pods/llama-decode" in path]:
        del world.api.objects[path]
    world.sync()
    looked_at(world, replicas=2, updatedReplicas=1)
    await world.reconcile()
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("DecodeReady")["reason"] == "ScaledToZero"


BUDGETED = {**SLEEPY, "gpuBudget": 8}
SMALL = {"replicas": 3, "autoscaling": {"minReplicas": 2, "maxReplicas": 6}}


async def test_both_roles_wake_at_once_when_the_budget_is_just_enough(world: World) -> None:
    world.edit(parameter=SMALL, decode=SMALL, autoscaling={**SLEEPY, "gpuBudget": 4})
    await serving(world)
    await no_requests(world)
    take_pods_away(world)
    world.observe(activity=HELD)
    await world.reconcile()
    assert replicas(world) == [2, 2]


async def test_a_waking_resource_waits_for_gpus_of_terminating_pods(world: World) -> None:
    world.edit(parameter=SMALL, decode=SMALL, autoscaling={**SLEEPY, "gpuBudget": 4})
    await serving(world)
    await no_requests(world)
    assert replicas(world) == [0, 0]
    world.observe(activity=HELD)  # while a pod of each role ends
    await world.reconcile()
    assert sum(replicas(world)) == 2
    assert "GpuBudget" in {world.condition(f"{role}Ready")["reason"] for role in ("Parameter", "Decode")}
    await world.reconcile()
    await world.reconcile()
    assert world.api.writes() == 0, "it waits without a write"
    take_pods_away(world)
    await world.reconcile()
    assert replicas(world) == [2, 2]


async def test_a_restarted_operator_lets_a_revision_wait_that_wakes(world: World) -> None:
    """It has no pods yet, because old ones hold the GPUs, and the new operator does not know of the request yet."""
    role = {"replicas": 1, "parallelism": {"tensor": 2}, "autoscaling": {"maxReplicas": 2}}
    world.edit(parameter=role, decode=role, autoscaling={**SLEEPY, "gpuBudget": 4})
    await serving(world)
    await no_requests(world)
    world.observe(activity=HELD)
    await world.reconcile()
    assert replicas(world) == [0, 0]
    world.observe(activity=None)
    world.restart()
    await world.reconcile()
    assert replicas(world) == [0, 0]
    world.observe(activity=HELD)
    take_pods_away(world)
    await world.reconcile()
    assert replicas(world) == [1, 1]


def replicas(world: World) -> list[int]:
    """Pods of P and of D."""
    revision = world.status["revision"]
    paths = (
        STATEFUL_SET.path("ns", f"llama-parameter-{revision}"),
        DEPLOYMENT.path("ns", f"llama-decode-{revision}"),
    )
    return [world.api.objects[path]["spec"]["replicas"] for path in paths]
