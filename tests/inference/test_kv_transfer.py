"""The condition KVTransfer of a reconcile, and the metric from which the alerts follow."""

from collections.abc import Callable

import pytest

from pdinference.api.names import Verification
from pdinference.planning.transfer_measurements import CanaryFacts, Counted, TransferFacts
from tests.inference.world import CR, OWNER, Json, World
from tests.memory.configs import LLAMA_8B


@pytest.fixture
def world(document: Callable[..., Json]) -> World:
    return World(document())


def reasons(world: World) -> dict[str, float]:
    return {
        sample.labels["reason"]: sample.value
        for family in world.metrics.registry.collect()
        if family.name == "pdinference_kv_transfer"
        for sample in family.samples
        if (sample.labels["inference_namespace"], sample.labels["inference_name"]) == ("ns", "llama")
    }


async def measured(world: World) -> None:
    """Transfers at 0.1 GB/s."""
    await world.reconcile()
    revision = world.status["revision"]
    counted = Counted(1e6, complete=100, bytes=1e9, transfer_seconds=10, first_tokens=10, first_token_seconds=60)
    world.observe(transfer=TransferFacts(revision, CanaryFacts(Verification.OFF, revision), 300, counted))
    await world.reconcile()


async def test_the_metric_has_the_reason_of_the_condition(world: World) -> None:
    await world.reconcile()
    assert reasons(world) == {}
    for state, reason in ((Verification.VERIFIED, "Verified"), (Verification.WRONG_ANSWER, "WrongAnswers")):
        world.observe(transfer=TransferFacts("r1", CanaryFacts(state, "r1")))
        await world.reconcile()
        assert world.condition("KVTransfer")["reason"] == reason
        assert reasons(world) == {reason: 1}
        await world.reconcile()
        assert world.api.requests.total() == 0
    del world.api.objects[CR]
    world.sync()
    await world.reconciler.reconcile(OWNER)
    assert reasons(world) == {}


@pytest.mark.parametrize(("accelerator", "reason"), [({"type": "CPU"}, "Transferring"), ({}, "Slow")])
async def test_the_hardware_of_the_spec_decides_what_is_slow(
    document: Callable[..., Json], accelerator: Json, reason: str
) -> None:
    role = {"accelerator": accelerator}
    world = World(document(parameter=role, decode=role))
    await measured(world)
    assert world.condition("KVTransfer")["reason"] == reason


async def test_the_model_of_the_spec_decides_what_fp8_saves(document: Callable[..., Json]) -> None:
    model = {"source": {"path": "/a"}, "architecture": {"config": LLAMA_8B}}
    world = World(document(model=model, memoryPolicy="Warn"))
    await measured(world)
    assert "fp8 (65,536 bytes a prompt token, not 131,072)" in world.condition("KVTransfer")["message"]
