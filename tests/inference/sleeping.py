"""A resource with `scaleToZero`: its spec, its replica counts, and the way to sleep."""

from typing import Any

from pdinference.cluster.kinds import DEPLOYMENT, STATEFUL_SET
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from tests.inference.world import World

Json = dict[str, Any]
BUSY, IDLE = ReportedActivity(held=False, idle_seconds=0), ReportedActivity(held=False, idle_seconds=901)
HELD = ReportedActivity(held=True, idle_seconds=0)
SCALED = {
    "replicas": 3,
    "parallelism": {"tensor": 2},
    "autoscaling": {"minReplicas": 2, "maxReplicas": 6},
}
NODES = {**SCALED, "parallelism": {"tensor": 2, "nodes": 2}}
SLEEPY = {"scaleToZero": {"afterSeconds": 900}}


def counts(world: World) -> list[int]:
    """Pods of D, and of each node of P."""
    revision = world.status["revision"]
    paths = [
        DEPLOYMENT.path("ns", f"llama-decode-{revision}"),
        STATEFUL_SET.path("ns", f"llama-parameter-{revision}"),
        STATEFUL_SET.path("ns", f"llama-node1-{revision}"),
    ]
    return [world.api.objects[path]["spec"]["replicas"] for path in paths]


async def serving(world: World) -> None:
    for _ in range(2):
        await world.reconcile()
        world.roll_out()
    await world.reconcile()
    assert world.condition("Ready")["reason"] == "Serving"


async def asleep(world: World) -> None:
    """No requests arrive until the resource sleeps and Kubernetes has deleted the pods."""
    await serving(world)
    await no_requests(world)
    take_pods_away(world)
    await world.reconcile()
    assert counts(world) == [0, 0, 0]


async def no_requests(world: World) -> None:
    """For long enough, so that the operator takes the pods away."""
    world.observe(activity=IDLE)
    await world.reconcile()
    await world.reconcile()


def take_pods_away(world: World) -> None:
    world.roll_out()
    for path in [p for p in world.api.objects if "/pods/" in p and "/pods/llama-router" not in p]:
        del world.api.objects[path]
    world.sync()
