"""Replica counts follow a recommendation on a real API server, and only the operator writes them."""

from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT, SCALER
from tests.integration.operators import Operators
from tests.integration.recommendations import comes_to, deployment, exists, recommend, recommended
from tests.integration.world import World, until

SCALED: dict[str, Any] = {"replicas": 3, "autoscaling": {"maxReplicas": 6}}


async def test_autoscaling_turned_on_keeps_every_pod_and_one_writer(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(decode={"replicas": 4})
    revision = await world.serving()
    before = {pod["metadata"]["uid"] for pod in await world.pods(Role.DECODE, revision)}
    await world.apply(decode={**SCALED, "replicas": 4})
    await until(lambda: exists(world, AUTOSCALER), "there is an HPA")
    assert await recommended(world) == 4
    await recommend(world, 5)
    await comes_to(world, revision, 5)
    holders = {
        entry["manager"]
        for entry in (await deployment(world, revision))["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    }
    assert holders == {names.FIELD_MANAGER}
    assert {pod["metadata"]["uid"] for pod in await world.pods(Role.DECODE, revision)} >= before


async def test_a_recommended_count_outlives_restarts_and_repairs(world: World, operators: Operators) -> None:
    first = await operators.start()
    await world.apply(decode=SCALED)
    revision = await world.serving()
    await comes_to(world, revision, 3)
    first.kill()
    await recommend(world, 5)
    await operators.start()
    await comes_to(world, revision, 5)
    path = DEPLOYMENT.path(world.namespace, f"llama-decode-{revision}")
    await world.api.merge(path, {"spec": {"replicas": 2, "progressDeadlineSeconds": 77}})

    async def repaired() -> bool:
        spec = (await deployment(world, revision))["spec"]
        return bool(spec["progressDeadlineSeconds"] != 77 and spec["replicas"] == 5)

    await until(repaired, "the edit is undone")
    assert await recommended(world) == 5


async def test_a_new_revision_has_the_recommended_count_from_the_start(world: World, operators: Operators) -> None:
    await operators.start()
    await world.apply(decode=SCALED)
    first = await world.serving()
    hpa = (await world.get(AUTOSCALER, "llama-decode") or {})["spec"]
    await recommend(world, 5)
    await comes_to(world, first, 5)
    await world.apply(decode=SCALED, engine={"image": "example/vllm:2"})
    await world.settled()
    second = (await world.status())["revision"]
    await comes_to(world, second, 5)
    await recommend(world, 6)
    await comes_to(world, first, 6)
    await comes_to(world, second, 6)
    assert await world.serving() == second != first
    assert (await deployment(world, second))["spec"]["replicas"] == 6
    assert (await world.get(AUTOSCALER, "llama-decode") or {})["spec"] == hpa
    assert hpa["scaleTargetRef"]["kind"] == SCALER.name
