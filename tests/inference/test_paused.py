"""While a resource is paused, edits of its spec are stored and not rolled out."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest

from pdinference.api import names
from pdinference.cluster.cache import Cache
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CONTROLLER_REVISION, RESOURCE
from pdinference.examination.desired import InvalidSpecError
from pdinference.examination.tasks import tasks
from pdinference.isolation.calls import EndedError, InProcess
from pdinference.loadmetrics.policies import Policies
from pdinference.manifests import RenderSettings
from tests.inference import model_jobs, sleeping
from tests.inference.scaled import (
    SCALED,
    count,
    decode,
    recommend,
    rests,
    rolls_out_although_operators_restart,
    serving,
)
from tests.inference.world import CR, OWNER, ROUTER, World

Json = dict[str, Any]
Make = Callable[..., Json]
PLACE = CONTROLLER_REVISION.path("ns")
NEW: Json = {"parameter": {"seed": 7}}
RESUME = "until `kubectl pdi resume llama -n ns`."


class NoSpecIsValid(InProcess):
    """An operator with other rules."""

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        return pickle.dumps(InvalidSpecError.from_problems(["spec.parameter.seed: too small"]))


class NothingEnds(InProcess):
    """No examination ends."""

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        raise EndedError("The examination took longer than 5 s and was ended.")


@pytest.fixture
def world(document: Make) -> World:
    return World(document(decode={"replicas": 1}))


async def mark(world: World, value: str | None) -> None:
    await world.api.merge(CR, {"metadata": {"annotations": {names.ANNOTATION_PAUSED: value}}})
    world.sync()


async def pause(world: World) -> None:
    await mark(world, "true")


async def resume(world: World) -> None:
    await mark(world, None)


def numbers(world: World) -> list[int]:
    """Of the entries of the history."""
    return sorted(body["revision"] for path, body in world.api.objects.items() if path.startswith(PLACE))


def specs(world: World) -> str:
    """Of all workloads."""
    found = {path: body["spec"] for path, body in world.api.objects.items() if "/apps/" in path and "spec" in body}
    return json.dumps(found, sort_keys=True)


async def paused_with_an_edit(world: World, **edit: Any) -> str:
    """The resource serves, is paused, and then edited. Returns its revision."""
    first = await serving(world)
    await pause(world)
    world.edit(**(edit or {"decode": {"replicas": 1}, **NEW}))
    await world.reconcile()
    return first


def says(world: World, status: str, words: str) -> bool:
    """Whether Progressing has this status for the reason Paused, and the message."""
    found = world.condition("Progressing")
    assert (found["status"], found["reason"]) == (status, "Paused"), found
    assert words in found["message"], found
    return True


async def test_an_edit_waits_until_the_resource_is_resumed(world: World) -> None:
    first = await serving(world)
    before = specs(world)
    await pause(world)
    await world.reconcile()
    assert says(
        world, "False", f"Revision {first} is rolled out. Paused: edits of the spec are not rolled out {RESUME}"
    )
    assert await rests(world)
    world.edit(decode={"replicas": 1}, **NEW)
    await world.reconcile()
    assert says(world, "True", f"Revision {first} is rolled out. Paused: the stored spec is not rolled out {RESUME}")
    assert world.status["observedGeneration"] == world.api.objects[CR]["metadata"]["generation"]
    assert (world.condition("Ready")["status"], world.condition("Reconciling")["reason"]) == ("True", "Paused")
    assert await rests(world)
    assert specs(world) == before
    assert numbers(world) == [1]
    await resume(world)
    await world.reconcile()
    second = world.status["revision"]
    assert second != first
    assert world.condition("Progressing")["reason"] == "RollingOut"
    assert numbers(world) == [1, 2]
    assert await serving(world) == second


async def test_nothing_is_written_at_rest_and_the_spec_in_effect_is_read_once(world: World) -> None:
    await paused_with_an_edit(world)
    await world.reconcile()
    await world.reconcile()
    assert world.api.requests.total() == 0
    world.restart()
    await world.reconcile()
    assert world.api.requests == {"get": 1}


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_resource_scales_by_its_spec_and_the_count_is_kept(world: World, restarted: bool) -> None:
    first = await paused_with_an_edit(world)
    for pods in (5, 3):
        if restarted:
            world.restart()
        world.edit(decode={"replicas": pods}, **NEW)
        await world.reconcile()
        assert count(world, first) == pods
        assert world.status["revision"] == first
    assert await rests(world)
    assert numbers(world) == [1]
    await resume(world)
    await world.reconcile()
    assert count(world, world.status["revision"]) == 3


async def test_scaling_alone_is_no_edit_that_waits(world: World) -> None:
    first = await serving(world)
    await pause(world)
    world.edit(decode={"replicas": 4})
    await world.reconcile()
    assert count(world, first) == 4
    assert "Paused: edits of the spec are not rolled out" in world.condition("Progressing")["message"]
    assert numbers(world) == [2], "the count replaces the newest entry, as without a pause"


async def test_a_count_that_the_spec_in_effect_cannot_have_waits_too(document: Make) -> None:
    world = World(document(decode={"replicas": 1}, autoscaling={"gpuBudget": 8}))
    first = await serving(world)
    await pause(world)
    world.edit(decode={"replicas": 90}, autoscaling={"gpuBudget": 100}, **NEW)
    await world.reconcile()
    assert count(world, first) == 1
    assert says(world, "True", "the stored spec is not rolled out")


async def test_replica_counts_follow_their_scaler(document: Make) -> None:
    world = World(document(decode=SCALED))
    first = await paused_with_an_edit(world, decode=SCALED, **NEW)
    for pods in (5, 3):
        recommend(world, pods)
        await world.reconcile()
        assert count(world, first) == pods


async def test_drift_is_corrected(world: World) -> None:
    first = await paused_with_an_edit(world)
    del world.api.objects[ROUTER]
    world.api.scale(decode(first), 3)
    world.sync()
    await world.reconcile()
    assert ROUTER in world.api.objects
    assert count(world, first) == 1


async def test_a_model_that_sleeps_stays_asleep_and_wakes(document: Make) -> None:
    world = World(document(parameter=sleeping.NODES, decode=sleeping.SCALED, autoscaling=sleeping.SLEEPY))
    await sleeping.asleep(world)
    await pause(world)
    world.edit(decode={**sleeping.SCALED, "seed": 7})
    await world.reconcile()
    assert sleeping.counts(world) == [0, 0, 0]
    assert world.condition("Ready")["reason"] == "Asleep"
    world.observe(activity=sleeping.HELD)
    await world.reconcile()
    assert sleeping.counts(world) == [2, 2, 2]


async def test_recreate_deletes_nothing(document: Make) -> None:
    world = World(document(rollout={"strategy": "Recreate"}))
    await serving(world)
    before = specs(world)
    await pause(world)
    world.edit(rollout={"strategy": "Recreate"}, **NEW)
    for _ in range(2):
        await world.reconcile()
        assert specs(world) == before


async def test_a_roll_out_that_had_begun_ends(world: World) -> None:
    first = await serving(world)
    world.edit(decode={"replicas": 1}, **NEW)
    await world.reconcile()
    second = world.status["revision"]
    assert second != first
    await pause(world)
    world.edit(decode={"replicas": 1}, parameter={"seed": 8})
    await world.reconcile()
    progressing = world.condition("Progressing")
    assert progressing["reason"] == "RollingOut"
    assert progressing["message"].endswith(f"Paused: the stored spec is not rolled out {RESUME}")
    await rolls_out_although_operators_restart(world)
    assert world.status["servingRevision"] == second
    assert world.revisions() == {second}
    assert says(world, "True", f"Revision {second} is rolled out.")


async def test_a_return_to_the_spec_in_effect_leaves_nothing_to_roll_out(world: World) -> None:
    await paused_with_an_edit(world)
    world.edit(decode={"replicas": 1})
    await world.reconcile()
    assert says(world, "False", "edits of the spec")
    assert "Reconciling" not in {condition["type"] for condition in world.status["conditions"]}
    before = specs(world)
    await resume(world)
    await world.reconcile()
    assert world.condition("Progressing")["reason"] == "RolloutComplete"
    assert specs(world) == before


async def test_an_invalid_edit_is_found_when_it_is_to_be_rolled_out(world: World) -> None:
    first = await paused_with_an_edit(world, decode={"replicas": 1}, engine={"args": {"no-such-option": 1}})
    assert says(world, "True", "the stored spec is not rolled out")
    await resume(world)
    await world.reconcile()
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert world.status["revision"] == first


async def test_a_resource_that_is_paused_from_the_beginning_starts_nothing(world: World) -> None:
    await pause(world)
    await world.reconcile()
    assert not world.api.names("/apps/")
    assert says(world, "True", "Roll out the stored spec with `kubectl pdi resume llama -n ns`.")
    assert 'reason="InvalidSpec"' not in generate_latest(world.metrics.registry).decode()
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Paused")
    assert "Stalled" not in {condition["type"] for condition in world.status["conditions"]}
    await world.reconcile()
    assert world.api.requests.total() == 0
    await resume(world)
    assert await serving(world)


async def test_a_spec_whose_model_is_not_examined_yet_is_not_in_effect(document: Make) -> None:
    world = World(document(model=model_jobs.model()))
    await world.reconcile()
    await pause(world)
    model_jobs.report(world, complete=True, phase="Ready")
    await world.reconcile()
    assert numbers(world) == []
    assert says(world, "True", "its history has no valid spec")
    await resume(world)
    assert await serving(world)


async def test_a_spec_in_effect_that_a_newer_operator_refuses_leaves_children_alone(world: World) -> None:
    await paused_with_an_edit(world)
    world.examinations(NoSpecIsValid(tasks(RenderSettings())))
    before = specs(world)
    await world.reconcile()
    assert says(world, "True", "so nothing was changed and running pods continue.")
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("Unknown", "Paused")
    assert specs(world) == before


async def test_an_examination_that_does_not_end_is_tried_again(world: World) -> None:
    await paused_with_an_edit(world)
    world.examinations(NothingEnds(tasks(RenderSettings())))
    assert (await world.reconcile()).requeue_after
    assert world.condition("Progressing")["reason"] == "InvalidSpec"


async def test_a_spec_in_effect_that_cannot_be_read_is_tried_again(world: World) -> None:
    first = await paused_with_an_edit(world)
    world.restart()
    (path,) = [path for path in world.api.objects if path.startswith(PLACE)]
    world.api.fail("get", path, ApiError(500, "InternalError", "etcd"))
    assert (await world.reconcile()).retry
    assert not (await world.reconcile()).retry
    assert world.status["revision"] == first


async def test_only_the_value_true_pauses(world: World) -> None:
    first = await serving(world)
    await mark(world, "false")
    world.edit(decode={"replicas": 1}, **NEW)
    await world.reconcile()
    assert world.status["revision"] != first


async def test_objectives_are_measured_by_the_spec_in_effect(document: Make) -> None:
    world = World(document(objectives={"ttft": "500ms"}))
    await serving(world)
    await pause(world)
    world.edit(objectives={"ttft": "100ms"})

    def measured(policies: Policies) -> float | None:
        found = policies.objectives(OWNER)
        return None if found is None else found.ttft

    for _ in range(2):
        await world.reconcile()
        policies = Policies(world.cache)
        assert measured(policies) == 0.5
        await resume(world)
        await world.reconcile()
        assert measured(policies) == 0.1
        await pause(world)
        world.edit(objectives={"ttft": "50ms"})
        await world.reconcile()
        assert measured(policies) == 0.1
        world.edit(objectives={"ttft": "500ms"})
        await resume(world)
        await world.reconcile()
        await pause(world)
        world.edit(objectives={"ttft": "100ms"})
        world.restart()


def test_the_mark_alone_is_a_change_that_is_reconciled() -> None:
    cache = Cache()
    metadata = {"name": "llama", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1"}
    cache.observe(RESOURCE, {"metadata": metadata, "spec": {}}, deleted=False)
    for version, marks in (("2", {names.ANNOTATION_PAUSED: "true"}), ("3", {})):
        changed = {**metadata, "resourceVersion": version, "annotations": marks}
        assert cache.observe(RESOURCE, {"metadata": changed, "spec": {}}, deleted=False) == {OWNER}


def test_a_pause_beside_the_operators_own_write_of_the_status_is_reconciled() -> None:
    cache = Cache()
    metadata = {"name": "llama", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1"}
    cache.observe(RESOURCE, {"metadata": metadata, "spec": {}}, deleted=False)
    metadata |= {"resourceVersion": "3", "annotations": {names.ANNOTATION_PAUSED: "true"}}
    cache.status_written(names.KIND, {"metadata": metadata, "spec": {}})
    assert cache.observe(RESOURCE, {"metadata": metadata, "spec": {}}, deleted=False) == {OWNER}


async def test_a_deleted_resource_leaves_nothing_behind(world: World) -> None:
    await paused_with_an_edit(world)
    assert world.cache.last_valid
    del world.api.objects[CR]
    world.sync()
    await world.reconcile()
    assert not world.cache.last_valid
