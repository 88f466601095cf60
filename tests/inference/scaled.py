"""An autoscaled resource: its spec, its replica counts, and a scaler that recommends."""

from typing import Any

from pdinference.cluster.kinds import DEPLOYMENT, SCALER
from tests.inference.world import World

Json = dict[str, Any]
SCALED = {"replicas": 2, "autoscaling": {"maxReplicas": 6, "targets": {"kvDemand": 80}}}
PARALLELISM = {"pipeline": 3, "nodes": 3}
GROUPS = {**SCALED, "parallelism": PARALLELISM}
TARGET = SCALER.path("ns", "llama-decode")


def decode(revision: str) -> str:
    return DEPLOYMENT.path("ns", f"llama-decode-{revision}")


def count(world: World, revision: str) -> int:
    found: int = world.api.objects[decode(revision)]["spec"]["replicas"]
    return found


def recommended(world: World) -> int | None:
    found: int | None = world.api.objects[TARGET]["spec"].get("replicas")
    return found


def recommend(world: World, pods: int, role: str = "decode") -> None:
    """What an HPA does."""
    world.api.scale(SCALER.path("ns", f"llama-{role}"), pods)
    world.sync()


async def serving(world: World) -> str:
    """Reconcile until a revision serves and nothing is left to do."""
    for _ in range(2):
        await world.reconcile()
        world.roll_out()
    await world.reconcile()
    await world.reconcile()
    revision: str = world.status["servingRevision"]
    assert revision == world.status["revision"]
    return revision


async def rolls_out_although_operators_restart(world: World) -> None:
    """Let a roll-out end, each half of it with a new operator."""
    for _ in range(2):
        world.restart()
        world.roll_out()
        await world.reconcile()
        await world.reconcile()


async def rests(world: World) -> bool:
    """Whether a reconcile writes nothing, also after a restart of the operator."""
    await world.reconcile()
    quiet = world.api.writes() == 0
    world.restart()
    await world.reconcile()
    return quiet and world.api.writes() == 0
