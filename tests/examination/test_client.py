"""A spec whose examination failed is reported, and not examined again for a while."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pdinference.cluster.state.records import ResourceRecord, resource_record
from pdinference.examination.client import AGAIN_AFTER_S, ExaminationEndedError, Examinations
from pdinference.examination.desired import InvalidSpecError
from pdinference.examination.tasks import tasks
from pdinference.isolation.calls import BusyError, EndedError, InProcess
from pdinference.manifests import RenderSettings
from tests.inference.world import World

Make = Callable[..., dict[str, Any]]


class Calls(InProcess):
    """Calls with preset results."""

    def __init__(self) -> None:
        super().__init__(tasks(RenderSettings()))
        self.error: Exception | None = EndedError("The examination took longer than 5 s and was ended.")
        self.count = 0

    async def call(self, task: str, payload: bytes, *, turn: str, client: str = "") -> bytes:
        self.count += 1
        if self.error is not None:
            raise self.error
        return await super().call(task, payload, turn=turn)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def record(document: dict[str, Any], generation: int = 1) -> ResourceRecord:
    metadata = {**document["metadata"], "resourceVersion": "1", "generation": generation}
    return resource_record(document["kind"], {**document, "metadata": metadata})


async def test_it_is_examined_again_when_it_changes_and_after_a_while(calls: Calls, document: Make) -> None:
    now = [0.0]
    examinations = Examinations(calls, clock=lambda: now[0])
    for count in (1, 1):
        with pytest.raises(ExaminationEndedError, match=r"took longer than 5 s"):
            await examinations.compiled(record(document()))
        assert calls.count == count
    with pytest.raises(ExaminationEndedError):
        await examinations.compiled(record(document(), generation=2))
    assert calls.count == 2
    now[0] = AGAIN_AFTER_S + 1
    calls.error = None
    assert (await examinations.compiled(record(document(), generation=2)))[0].generation == 2


async def test_batches_are_examined_the_same_way(calls: Calls, batch_document: Make) -> None:
    examinations = Examinations(calls)
    with pytest.raises(ExaminationEndedError):
        await examinations.batch(record(batch_document()))
    calls.error = None
    before = calls.count
    for _ in range(2):  # the second time, nothing has changed
        assert (await examinations.batch(record(batch_document(), generation=2))).metadata.name == "nightly"
    assert calls.count == before + 1
    with pytest.raises(InvalidSpecError, match=r"spec\.concurrency"):
        await examinations.batch(record(batch_document(concurrency=0), generation=3))


@pytest.mark.parametrize("kind", ["PDInference", "PDBatch"])
async def test_what_cannot_be_read_is_not_examined(
    kind: str, calls: Calls, document: Make, batch_document: Make
) -> None:
    made = document() if kind == "PDInference" else batch_document()
    made["spec"]["x"] = "y" * 2**20
    examinations = Examinations(calls)
    with pytest.raises(InvalidSpecError, match=r"spec: is \d+ bytes of JSON"):
        await (examinations.compiled if kind == "PDInference" else examinations.batch)(record(made))
    assert calls.count == 0


async def test_the_status_says_it_and_children_stay(calls: Calls, document: Make) -> None:
    world = World(document())
    await world.reconcile()
    children = world.api.names("/apps/")
    world.examinations(calls)
    world.edit(decode={"replicas": 2})
    result = await world.reconcile()
    assert (result.retry, result.requeue_after) == (False, AGAIN_AFTER_S)
    assert "running pods continue" in world.condition("Progressing")["message"]
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert "took longer than 5 s" in world.condition("Progressing")["message"]
    assert world.api.names("/apps/") == children
    await world.reconcile()
    assert calls.count == 2, "one for the stored spec, and one for the last valid spec"
    calls.error = None
    world.edit(decode={"replicas": 3})
    await world.reconcile()
    assert world.condition("Progressing")["reason"] != "InvalidSpec"


async def test_where_others_are_examined_it_is_tried_again_soon(calls: Calls, document: Make) -> None:
    world = World(document())
    calls.error = BusyError("Try again.")
    world.examinations(calls)
    before = json.dumps(world.api.objects)
    assert (await world.reconcile()).retry
    assert json.dumps(world.api.objects) == before
