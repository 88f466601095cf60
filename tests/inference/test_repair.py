"""A reconcile restarts the pod whose KV transfer is proven broken, and the status and Events say so."""

from collections.abc import Callable

import pytest

from pdinference.api.names import PodFault, Verification
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import POD
from pdinference.planning.transfer_measurements import CanaryFacts, PairFacts, TransferFacts
from tests.inference.world import Json, World

FAULT = {"faults": 3, "seconds": 61.0}


@pytest.fixture
def document(document: Callable[..., Json]) -> Json:
    return document()


async def serving(document: Json) -> World:
    """A resource that serves with a P and a D pod."""
    world = World(document)
    for _ in range(3):
        await world.reconcile()
        world.roll_out()
    await world.reconcile()
    assert world.condition("Ready")["status"] == "True"
    return world


def pods(world: World) -> tuple[str, str]:
    """The names of the P and the D pod."""
    (parameter,) = world.api.names("/pods/llama-parameter")
    (decode,) = world.api.names("/pods/llama-decode")
    return parameter, decode


def report(world: World, *, broken: bool) -> None:
    """What the routers report of the only pair."""
    revision = world.status["revision"]
    pair = PairFacts(*pods(world), **(FAULT if broken else {}))  # type: ignore[arg-type]
    state = Verification.COMPUTED_BY_DECODE if broken else Verification.VERIFIED
    world.observe(transfer=TransferFacts(revision, CanaryFacts(state, revision), pairs=(pair,)))


def restarted(world: World) -> bool:
    """Whether the P pod was evicted. Its StatefulSet starts it again."""
    gone = not world.api.names("/pods/llama-parameter")
    assert len(world.api.names("/pods/llama-decode")) == 1, "D is the only one that answers"
    world.roll_out()
    return gone


def events(world: World) -> list[str]:
    return [body["reason"] for path, body in world.api.objects.items() if "/events/" in path]


async def test_p_is_evicted_and_the_status_tells_what_came_of_it(document: Json) -> None:
    world = await serving(document)
    parameter, _ = pods(world)
    report(world, broken=True)
    await world.reconcile()
    assert restarted(world)
    assert world.status["transfer"]["repair"]["pods"] == [parameter]
    assert f"Pod {parameter} was restarted" in world.condition("KVTransfer")["message"]
    assert "KVTransferRepair" in events(world)
    await world.reconcile()
    assert not restarted(world), "the next one comes later"
    report(world, broken=False)
    await world.reconcile()
    assert world.status["transfer"]["repair"]["outcome"] == "Repaired"
    assert "KVTransferRepaired" in events(world)
    assert "restarted" not in world.condition("KVTransfer")["message"]
    await world.reconcile()
    assert world.api.requests.total() == 0


async def test_a_new_operator_goes_on_with_what_the_status_says(document: Json) -> None:
    world = await serving(document)
    report(world, broken=True)
    await world.reconcile()
    assert restarted(world)
    world.restart()
    await world.reconcile()
    assert not restarted(world)
    world.later(121)
    await world.reconcile()
    assert restarted(world)
    assert len(world.status["transfer"]["repair"]["pods"]) == 2


async def test_nothing_is_evicted_if_the_spec_says_so(document: Json) -> None:
    world = await serving(document)
    world.edit(transfer={"repair": "Off"})
    await world.reconcile()
    report(world, broken=True)
    await world.reconcile()
    assert world.condition("KVTransfer")["reason"] == "ComputedByDecode"
    assert not restarted(world)


async def test_nothing_is_evicted_while_pods_change(document: Json) -> None:
    world = await serving(document)
    report(world, broken=True)
    world.edit(decode={"replicas": 2})
    await world.reconcile()
    await world.reconcile()
    assert not restarted(world)


async def test_a_disruption_budget_is_respected_and_named(document: Json) -> None:
    world = await serving(document)
    report(world, broken=True)
    refusal = ApiError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
    world.api.fail("create", f"{POD.path('ns', pods(world)[0])}/eviction", refusal)
    result = await world.reconcile()
    assert result.requeue_after is not None
    assert "its PodDisruptionBudget allows no eviction now" in world.condition("KVTransfer")["message"]
    await world.reconcile()
    assert world.status["transfer"]["repair"]["outcome"] == "Pending"


async def with_fault_of_decode(document: Json, fault: PodFault) -> tuple[World, str, str]:
    """A world in which the routers found a fault of D, after a reconcile, and the pods that were P and D before it."""
    world = await serving(document)
    names = pods(world)
    report(world, broken=False)
    world.observe(pod_faults={names[1]: fault})
    await world.reconcile()
    return world, *names


async def test_a_pod_with_a_stuck_engine_is_evicted_and_the_condition_names_it(document: Json) -> None:
    world, parameter, decode = await with_fault_of_decode(document, PodFault.STUCK)
    assert world.api.names("/pods/llama-parameter") == [parameter]
    assert not world.api.names("/pods/llama-decode")
    assert f"Pod {decode} was restarted" in world.condition("KVTransfer")["message"]
    assert "no step for minutes" in world.status["transfer"]["repair"]["proof"]


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (Verification.OFF, "Repaired"),
        (Verification.NOT_APPLICABLE, "Repaired"),
        (Verification.PENDING, "Pending"),
    ],
)
async def test_where_canaries_show_nothing_time_shows_that_a_restart_helped(
    document: Json, state: Verification, outcome: str
) -> None:
    world, _, _ = await with_fault_of_decode(document, PodFault.STUCK)
    world.roll_out()
    revision = world.status["revision"]
    world.observe(pod_faults={}, transfer=TransferFacts(revision, CanaryFacts(state, revision)))
    await world.reconcile()
    assert world.status["transfer"]["repair"]["outcome"] == "Pending"
    world.later(30 * 60)
    await world.reconcile()
    assert world.status["transfer"]["repair"]["outcome"] == outcome


async def test_a_pod_with_a_stalled_engine_is_left_for_now(document: Json) -> None:
    world, _, decode = await with_fault_of_decode(document, PodFault.STALLED)
    assert world.api.names("/pods/llama-decode") == [decode]
    assert "spec.transfer.repair" in world.condition("DecodeReady")["message"]
