"""While the stored spec is invalid, the last valid one is reconciled like any other."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.store import LIMIT
from pdinference.cluster.kinds import CONTROLLER_REVISION
from pdinference.examination.client import AGAIN_AFTER_S
from pdinference.examination.tasks import COMPILE, tasks
from pdinference.isolation.calls import EndedError, InProcess
from pdinference.manifests import RenderSettings
from tests.inference import model_jobs, sleeping
from tests.inference.scaled import SCALED, count, decode, recommend, rolls_out_although_operators_restart, serving
from tests.inference.world import CR, ROUTER, World

Json = dict[str, Any]
Make = Callable[..., Json]
INVALID: Json = {"engine": {"args": {"no-such-option": 1}}}
PLACE = CONTROLLER_REVISION.path("ns")


@pytest.fixture
def world(document: Make) -> World:
    return World(document(decode=SCALED))


class KilledError(Exception):
    """The operator is gone."""


class Ended(InProcess):
    """Examinations of one seed do not end."""

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        if task == COMPILE and b'"seed":13' in payload:
            raise EndedError("The examination took longer than 5 s and was ended.")
        return await super().call(task, payload, turn=turn)


def history(world: World) -> list[int]:
    """Numbers of the entries, the oldest first."""
    return sorted(body["revision"] for path, body in world.api.objects.items() if path.startswith(PLACE))


def specs(world: World) -> str:
    """Of all workloads."""
    found = {path: body["spec"] for path, body in world.api.objects.items() if "/apps/" in path and "spec" in body}
    return json.dumps(found, sort_keys=True)


async def invalid(world: World) -> None:
    """The user stores an invalid spec, and the operator handles it."""
    world.edit(decode=SCALED, **INVALID)
    await world.reconcile()
    progressing = world.condition("Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "InvalidSpec")
    assert "so the last valid spec stays in effect. Correct it: spec.engine.args" in progressing["message"]
    assert world.status["observedGeneration"] == world.api.objects[CR]["metadata"]["generation"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_replica_counts_follow_their_scaler(world: World, restarted: bool) -> None:
    first = await serving(world)
    await invalid(world)
    for pods in (5, 3):
        if restarted:
            world.restart()
        recommend(world, pods)
        await world.reconcile()
        assert count(world, first) == pods
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Progressing")["reason"] == "InvalidSpec"


async def test_drift_is_corrected_and_nothing_is_written_at_rest(world: World) -> None:
    first = await serving(world)
    await invalid(world)
    del world.api.objects[ROUTER]
    world.api.scale(decode(first), 1)
    world.sync()
    await world.reconcile()
    assert ROUTER in world.api.objects
    assert count(world, first) == 2
    await world.reconcile()
    await world.reconcile()
    assert world.api.requests.total() == 0, "the last valid spec is read once"
    world.restart()
    await world.reconcile()
    assert world.api.requests == {"get": 1}


async def test_a_roll_out_that_had_begun_ends(world: World) -> None:
    first = await serving(world)
    world.edit(decode=SCALED, parameter={"seed": 7})
    await world.reconcile()
    second = world.status["revision"]
    assert second != first
    await invalid(world)
    await rolls_out_although_operators_restart(world)
    assert world.status["servingRevision"] == second
    assert world.revisions() == {second}
    recommend(world, 5)
    await world.reconcile()
    assert count(world, second) == 5
    assert world.condition("Progressing")["reason"] == "InvalidSpec"


async def test_a_model_that_sleeps_wakes_and_one_that_idles_falls_asleep(document: Make) -> None:
    world = World(document(parameter=sleeping.NODES, decode=sleeping.SCALED, autoscaling=sleeping.SLEEPY))
    await sleeping.asleep(world)
    world.edit(decode={"replicas": -1})
    await world.reconcile()
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert world.condition("Ready")["reason"] == "Asleep"
    world.restart()
    world.observe(activity=sleeping.HELD)
    await world.reconcile()
    assert sleeping.counts(world) == [2, 2, 2]
    world.roll_out()
    await sleeping.no_requests(world)
    assert sleeping.counts(world) == [0, 0, 0]


async def test_a_return_to_the_valid_spec_restarts_no_pod(world: World) -> None:
    await serving(world)
    before = specs(world)
    await invalid(world)
    world.edit(decode=SCALED)
    await world.reconcile()
    assert world.condition("Progressing")["reason"] != "InvalidSpec"
    assert specs(world) == before
    assert history(world) == [1]


async def test_without_a_history_children_are_left_alone(world: World) -> None:
    """So it is after an upgrade from a version that kept none."""
    await serving(world)
    world.edit(decode=SCALED, **INVALID)
    for path in [path for path in world.api.objects if path.startswith(PLACE)]:
        del world.api.objects[path]
    world.restart()
    before = specs(world)
    for _ in range(2):
        recommend(world, 5)
        await world.reconcile()
    assert world.api.writes() == 0
    assert specs(world) == before
    assert "running pods continue. Correct it: spec.engine.args" in world.condition("Progressing")["message"]
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("Unknown", "InvalidSpec")
    world.edit(decode=SCALED)
    await world.reconcile()
    assert world.condition("Ready")["status"] == "True"


async def test_a_newest_entry_that_is_now_invalid_is_not_replaced_by_an_older(world: World) -> None:
    world.edit(decode=SCALED, parameter={"seed": 1})
    await world.reconcile()
    world.edit(decode=SCALED, parameter={"seed": 13})
    await world.reconcile()
    second = world.status["revision"]
    for valid_once in ({"parameter": {"seed": 13}}, INVALID):
        world.examinations(Ended(tasks(RenderSettings())))
        world.edit(decode=SCALED, **valid_once)
        await world.reconcile()
        assert world.condition("Progressing")["reason"] == "InvalidSpec"
        assert "running pods continue" in world.condition("Progressing")["message"]
        assert world.status["revision"] == second
    assert history(world) == [1, 2]


async def test_a_model_that_turns_out_not_to_fit_leaves_the_one_before_in_effect(document: Make) -> None:
    """Only the Job that downloads it learns what would have been refused at once."""
    world = World(document(model=model_jobs.model(), decode=SCALED))
    await world.reconcile()
    assert history(world) == []
    model_jobs.report(world, complete=True, phase="Ready")
    first = await serving(world)
    assert history(world) == [1]
    lora = {"adapters": [{"name": "sql", "path": "owner/sql"}]}
    world.edit(model={**model_jobs.model("owner/other"), "lora": lora}, decode=SCALED)
    for _ in range(2):
        await world.reconcile()
    assert history(world) == [1], "nobody knows yet whether it is valid"
    facts = {"config": {"num_hidden_layers": 1}, "adapters": [{"path": "owner/sql", "rank": 64}]}
    model_jobs.report(world, complete=True, phase="Ready", facts=facts)
    assert (await world.reconcile()).requeue_after == pytest.approx(0.1)
    for restarted in (False, True):
        if restarted:
            world.restart()
        await world.reconcile()
        assert "sql has rank 64" in world.condition("Progressing")["message"]
        assert (world.status["revision"], world.status["servingRevision"]) == (first, first)
        assert world.revisions() == {first}
        for pods in (5, 3):
            recommend(world, pods)
            await world.reconcile()
            assert count(world, first) == pods
    await world.reconcile()
    await world.reconcile()
    assert world.api.writes() == 0
    world.edit(model={**model_jobs.model("owner/other"), "lora": {**lora, "maxRank": 64}}, decode=SCALED)
    await world.reconcile()
    assert world.condition("Progressing")["reason"] != "InvalidSpec"


async def test_an_invalid_spec_that_never_was_valid_creates_nothing(document: Make) -> None:
    world = World(document(**INVALID))
    await world.reconcile()
    assert not world.api.names("/apps/")
    assert world.condition("Ready")["status"] == "False"
    await world.reconcile()
    assert world.api.requests.total() == 0


async def test_an_ended_examination_leaves_the_last_valid_spec_in_effect(world: World) -> None:
    first = await serving(world)
    world.examinations(Ended(tasks(RenderSettings())))
    world.edit(decode=SCALED, parameter={"seed": 13})
    await world.reconcile()
    result = await world.reconcile()
    assert (result.retry, result.requeue_after) == (False, AGAIN_AFTER_S)
    assert "could not be examined, so the last valid spec stays in effect" in world.condition("Progressing")["message"]
    recommend(world, 5)
    await world.reconcile()
    assert count(world, first) == 5


async def test_a_last_valid_spec_that_cannot_be_read_is_tried_again(world: World) -> None:
    first = await serving(world)
    world.edit(decode=SCALED, **INVALID)
    (path,) = [path for path in world.api.objects if path.startswith(PLACE)]
    world.api.fail("get", path, ApiError(500, "InternalError", "etcd"))
    assert (await world.reconcile()).retry
    assert world.status["revision"] == first
    assert not (await world.reconcile()).retry
    assert world.condition("Progressing")["reason"] == "InvalidSpec"


async def test_children_precede_the_history_and_a_restart_completes_both(world: World) -> None:
    world.api.fail("create", PLACE, KilledError())  # type: ignore[arg-type]
    with pytest.raises(KilledError):
        await world.reconcile()
    assert ROUTER in world.api.objects
    assert history(world) == []
    world.restart()
    await world.reconcile()
    assert history(world) == [1]


async def test_a_history_that_cannot_be_written_is_reported_and_tried_again(world: World) -> None:
    world.api.fail("create", PLACE, ApiError(403, "Forbidden", "exceeded quota: team"))
    assert (await world.reconcile()).retry
    assert "exceeded quota: team" in world.condition("Progressing")["message"]
    assert not (await world.reconcile()).retry
    assert history(world) == [1]


async def test_the_history_of_many_edits_is_bounded(world: World) -> None:
    for seed in range(LIMIT + 3):
        world.edit(decode=SCALED, parameter={"seed": seed})
        await world.reconcile()
    assert history(world) == list(range(4, LIMIT + 4))
    await world.reconcile()
    await world.reconcile()
    assert world.api.requests.total() == 0
