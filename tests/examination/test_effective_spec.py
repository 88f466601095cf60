"""The spec in effect is examined once; its children are rendered again without the checks."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.cluster.kinds import SERVICE
from pdinference.examination.client import AGAIN_AFTER_S
from pdinference.examination.tasks import COMPILE, RENDER, tasks
from pdinference.isolation.calls import EndedError, InProcess
from pdinference.manifests import RenderSettings
from tests.inference.world import World

Make = Callable[..., dict[str, Any]]
CLIENTS = SERVICE.path("ns", "llama")


class Calls(InProcess):
    """Calls whose tasks are noted. Those of `ends` do not complete."""

    def __init__(self) -> None:
        super().__init__(tasks(RenderSettings()))
        self.made: list[str] = []
        self.ends = ""

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        self.made.append(task)
        if task == self.ends:
            raise EndedError("The examination took longer than 5 s and was ended.")
        return await super().call(task, payload, turn=turn)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
async def world(document: Make, calls: Calls) -> World:
    """A resource whose spec has just been examined."""
    world = World(document())
    world.examinations(calls)
    await world.reconcile()
    assert calls.made == [COMPILE], "its children come with the examination"
    return world


def lose(world: World) -> Any:
    """Somebody deletes a child."""
    lost = world.api.objects.pop(CLIENTS)
    world.sync()
    return lost


async def test_at_rest_it_is_neither_examined_nor_rendered(world: World, calls: Calls) -> None:
    await world.reconcile()
    assert calls.made == [COMPILE]


async def test_a_lost_child_is_rendered_without_an_examination(world: World, calls: Calls) -> None:
    lost = lose(world)
    await world.reconcile()
    assert calls.made == [COMPILE, RENDER]
    assert world.api.objects[CLIENTS]["spec"] == lost["spec"]
    assert world.api.objects[CLIENTS]["metadata"]["annotations"] == lost["metadata"]["annotations"]


async def test_a_rendering_that_does_not_complete_is_reported_and_not_repeated_at_once(
    world: World, calls: Calls
) -> None:
    lose(world)
    calls.ends = RENDER
    result = await world.reconcile()
    assert (result.retry, result.requeue_after) == (False, AGAIN_AFTER_S)
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert "running pods continue" in world.condition("Progressing")["message"]
    await world.reconcile()
    assert calls.made == [COMPILE, RENDER]
    assert CLIENTS not in world.api.objects
