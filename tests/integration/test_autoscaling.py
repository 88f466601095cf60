"""Replicas under an HPA, on a real API server: server-side apply gives the field up without losing its value."""

from typing import Any

from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT
from tests.integration.operators import Operators
from tests.integration.world import World, until

SCALED = {"replicas": 3, "autoscaling": {"maxReplicas": 6}}
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}


async def replicas(world: World, revision: str) -> int:
    found = await world.get(DEPLOYMENT, f"llama-decode-{revision}") or {}
    count: int = found["spec"]["replicas"]
    return count


async def hpa_writes(world: World, revision: str, count: int) -> None:
    """What the HPA controller does: it writes the scale subresource."""
    name = f"llama-decode-{revision}"
    metadata = {"name": name, "namespace": world.namespace}
    path = DEPLOYMENT.path(world.namespace, name) + "/scale"
    await world.api.replace(path, {**SCALE, "metadata": metadata, "spec": {"replicas": count}})


async def follows(world: World) -> str:
    hpa = await world.get(AUTOSCALER, "llama-decode")
    return "" if hpa is None else str(hpa["spec"]["scaleTargetRef"]["name"]).rsplit("-", 1)[1]


async def test_turning_autoscaling_on_keeps_every_pod(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(decode={"replicas": 4})
    revision = await world.serving()
    before = {pod["metadata"]["uid"] for pod in await world.pods("decode", revision)}  # type: ignore[arg-type]
    await world.apply(decode={**SCALED, "replicas": 4})
    await world.settled()

    async def followed() -> bool:
        return await follows(world) == revision

    await until(followed, "there is an HPA")
    deployment = await world.get(DEPLOYMENT, f"llama-decode-{revision}") or {}
    holders = [
        entry["manager"]
        for entry in deployment["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]
    assert holders == ["pdinference-operator-replicas"]
    assert deployment["spec"]["replicas"] == 4
    assert {pod["metadata"]["uid"] for pod in await world.pods("decode", revision)} == before  # type: ignore[arg-type]


async def test_what_the_hpa_writes_outlives_restarts_and_repairs(world: World, operators: Operators) -> None:
    first = await operators.start()
    await world.apply(decode=SCALED)
    revision = await world.serving()
    assert await replicas(world, revision) == 3
    await hpa_writes(world, revision, 5)
    first.kill()
    await operators.start()
    name = f"llama-decode-{revision}"
    await world.api.merge(DEPLOYMENT.path(world.namespace, name), {"spec": {"progressDeadlineSeconds": 77}})

    async def repaired() -> bool:
        deployment: dict[str, Any] = await world.get(DEPLOYMENT, name) or {}
        return bool(deployment["spec"]["progressDeadlineSeconds"] != 77)

    await until(repaired, "the edit is undone")
    assert await replicas(world, revision) == 5


async def test_a_new_revision_is_as_large_as_the_one_that_serves(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(decode=SCALED)
    first = await world.serving()
    await hpa_writes(world, first, 5)
    await world.apply(decode=SCALED, engine={"image": "example/vllm:2"})
    await world.settled()
    second = (await world.status())["revision"]

    async def grown(count: int) -> bool:
        deployment = await world.get(DEPLOYMENT, f"llama-decode-{second}")
        found: int = (deployment or {"spec": {"replicas": 0}})["spec"]["replicas"]
        return found == count

    await until(lambda: grown(5), "the new revision has as many pods")
    await hpa_writes(world, first, 6)
    await until(lambda: grown(6), "the new revision keeps up")
    assert await follows(world) == first
    await world.serving()

    async def moved() -> bool:
        return await follows(world) == str(second)

    await until(moved, "the HPA has moved")
    assert await replicas(world, second) == 6
