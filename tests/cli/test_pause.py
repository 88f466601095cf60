"""`pdinference pause` and `pdinference resume`, and other commands on a paused resource."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from pdinference.api import names
from tests.cli.explain_command import Command, predicted
from tests.inference.scaled import rests, serving
from tests.inference.world import CR, ROUTER, World

Json = dict[str, Any]
Make = Callable[..., Json]
Run = Callable[..., Result]
NEW: Json = {"parameter": {"seed": 7}}


async def ran(run: Run, world: World, *words: str) -> str:
    result = await asyncio.to_thread(run, world, *words)
    assert result.exit_code == 0, result.output
    return result.output


async def test_an_edit_of_a_paused_resource_rolls_out_when_it_is_resumed(document: Make, run: Run) -> None:
    world = World(document())
    first = await serving(world)
    before = world.api.objects[CR]["spec"]
    found = await ran(run, world, "pause", "llama")
    assert found == "llama is paused: edits are stored and not rolled out until `kubectl pdi resume llama -n ns`.\n"
    assert world.api.objects[CR]["spec"] == before
    world.edit(**NEW)
    await world.reconcile()
    assert world.status["revision"] == first
    assert await rests(world)
    found = await ran(run, world, "resume")
    assert found == (
        "llama is resumed, and its stored spec rolls out. Follow it with `kubectl pdi status llama -n ns --watch`.\n"
    )
    assert world.api.objects[CR]["metadata"]["annotations"] == {}
    await world.reconcile()
    assert world.status["revision"] != first


async def test_a_second_time_nothing_is_written(document: Make, run: Run) -> None:
    world = World(document())
    assert await ran(run, world, "resume") == "llama is not paused. Nothing was written.\n"
    await ran(run, world, "pause")
    world.api.requests.clear()
    assert await ran(run, world, "pause") == "llama is paused already. Nothing was written.\n"
    assert world.api.writes() == 0


async def test_as_json_they_say_whether_they_wrote(document: Make, run: Run) -> None:
    world = World(document())
    for command, paused in (("pause", True), ("resume", False)):
        for written in (True, False):
            found = json.loads(await ran(run, world, command, "-o", "json"))
            assert found == {"resource": "llama", "paused": paused, "written": written}


async def test_resume_names_other_clients_that_have_set_the_mark(document: Make, run: Run) -> None:
    world = World(document())
    fields: Json = {"f:metadata": {"f:annotations": {f"f:{names.ANNOTATION_PAUSED}": {}}}}
    body = world.api.objects[CR]
    managers = [
        {"manager": "argocd-controller", "fieldsV1": fields},
        {"manager": "pdinference", "fieldsV1": fields},
        {"manager": "kubectl", "fieldsV1": {"f:spec": {}}},
    ]
    marks = {names.ANNOTATION_PAUSED: "true"}
    world.api.objects[CR] = {**body, "metadata": {**body["metadata"], "annotations": marks, "managedFields": managers}}
    found = await asyncio.to_thread(run, world, "resume")
    assert found.stderr == (
        "Warning: argocd-controller has set the annotation pdinference.io/paused. Remove it there, too, or it comes "
        "back.\n"
    )
    assert world.api.objects[CR]["metadata"]["annotations"] == {}


async def test_a_resource_that_was_replaced_meanwhile_is_not_paused(
    document: Make, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(document())
    get = world.api.get

    async def replaced(path: str, **query: str) -> Json:
        found = await get(path, **query)
        body = world.api.objects[CR]
        world.api.objects[CR] = {**body, "metadata": {**body["metadata"], "uid": "another"}}
        return found

    monkeypatch.setattr(world.api, "get", replaced)
    found = await asyncio.to_thread(run, world, "pause")
    assert found.exit_code == 1
    assert "annotations" not in world.api.objects[CR]["metadata"]


async def test_history_diff_and_undo_are_about_the_edit_that_waits(document: Make, run: Run) -> None:
    world = World(document(decode={"replicas": 1}))
    await serving(world)
    await ran(run, world, "pause")
    world.edit(decode={"replicas": 4}, **NEW)
    await world.reconcile()
    assert "the resource is paused" in await ran(run, world, "history")
    assert "+  parameter:\n+    seed: 7\n" in await ran(run, world, "diff")
    await ran(run, world, "undo")
    assert world.api.objects[CR]["spec"]["decode"] == {"replicas": 4}, "the resource was scaled meanwhile"
    assert "parameter" not in world.api.objects[CR]["spec"]
    assert world.api.objects[CR]["metadata"]["annotations"] == {names.ANNOTATION_PAUSED: "true"}
    await world.reconcile()
    assert "edits of the spec are not rolled out" in world.condition("Progressing")["message"]


async def test_explain_says_what_waits_and_what_the_operator_does(document: Make, run: Run, command: Command) -> None:
    world = World(document())
    first = await serving(world)
    await ran(run, world, "pause")
    assert (await command.found(world))["problem"].startswith("Paused: edits of the spec are not rolled out until")
    world.edit(**NEW)
    del world.api.objects[ROUTER]
    world.sync()
    found = await command.found(world)
    assert found["problem"] == "Paused: the stored spec is not rolled out until `kubectl pdi resume llama -n ns`."
    assert found["target"] == first
    assert [(step["action"], step["kind"]) for step in found["writes"]] == [("create", "Deployment")]
    assert predicted(found) == await command.reconciled(world)


async def test_explain_of_a_resource_without_a_spec_in_effect(document: Make, run: Run, command: Command) -> None:
    world = World(document())
    await ran(run, world, "pause")
    text = " ".join((await command.run(world)).split())
    assert "The resource is paused and its history has no valid spec, so nothing is changed" in text
    assert "Nothing to do." in text


async def test_status_shows_the_pause(document: Make, run: Run) -> None:
    world = World(document())
    first = await serving(world)
    await ran(run, world, "pause")
    await world.reconcile()
    text = " ".join((await ran(run, world, "status", "llama")).split())
    assert f"revision {first} serves, Paused" in text
    assert "Progressing False Paused" in text
    assert "not rolled out until `kubectl pdi resume llama -n ns`" in text
