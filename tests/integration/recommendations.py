"""Recommended replica counts, written and read like an HPA does."""

from typing import Any

from pdinference.cluster.client import Json
from pdinference.cluster.kinds import DEPLOYMENT, SCALER
from tests.integration.world import World, until

SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}


async def deployment(world: World, revision: str) -> Json:
    return await world.get(DEPLOYMENT, f"llama-decode-{revision}") or {"spec": {"replicas": None}}


async def comes_to(world: World, revision: str, count: int) -> None:
    """Wait until the Deployment of D has this number of replicas."""

    async def so() -> bool:
        return bool((await deployment(world, revision))["spec"]["replicas"] == count)

    await until(so, f"revision {revision} has {count} D pods")


async def recommend(world: World, count: int) -> None:
    """What the HPA controller and a person do: write the scale subresource of the scale target."""
    metadata = {"name": "llama-decode", "namespace": world.namespace}
    path = SCALER.path(world.namespace, "llama-decode") + "/scale"
    await world.api.replace(path, {**SCALE, "metadata": metadata, "spec": {"replicas": count}})


async def recommended(world: World) -> int:
    found = await world.get(SCALER, "llama-decode") or {}
    count: int = found["spec"]["replicas"]
    return count


async def exists(world: World, kind: Any, name: str = "llama-decode") -> bool:
    return await world.get(kind, name) is not None
