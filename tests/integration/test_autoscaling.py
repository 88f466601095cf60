"""Replica counts that follow a recommendation, on a real API server: the operator alone writes them."""

from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import AUTOSCALER, DEPLOYMENT, SCALER
from tests.integration.operator_process import OperatorProcess
from tests.integration.operators import Operators
from tests.integration.scale_target import recommend, recommended
from tests.integration.world import World
from tests.waiting import until

SCALED: dict[str, Any] = {"replicas": 4, "autoscaling": {"maxReplicas": 6}}


async def deployment(world: World, revision: str) -> Json:
    return await world.get(DEPLOYMENT, f"llama-decode-{revision}") or {"spec": {"replicas": None}}


async def comes_to(world: World, count: int, *revisions: str) -> None:
    """Wait until the Deployments of D have so many replicas."""

    async def so() -> bool:
        return all([(await deployment(world, one))["spec"]["replicas"] == count for one in revisions])

    await until(so, f"{revisions} have {count} D pods")


async def test_the_operator_alone_writes_counts_and_follows(world: World, operators: Operators) -> None:
    operator = await operators.start()
    await world.apply(decode={"replicas": 4})
    revision = await world.serving()
    await expect_every_pod_to_stay_when_autoscaling_is_turned_on(world, revision)
    await expect_the_count_to_outlive_restarts_and_repairs(world, revision, operator, operators)
    await expect_a_new_revision_to_have_the_count_from_the_start(world, revision)


async def expect_every_pod_to_stay_when_autoscaling_is_turned_on(world: World, revision: str) -> None:
    before = {pod["metadata"]["uid"] for pod in await world.pods(Role.DECODE, revision)}
    await world.apply(decode=SCALED)

    async def scaled() -> bool:
        return await world.get(AUTOSCALER, "llama-decode") is not None

    await until(scaled, "there is an HPA")
    assert await recommended(world) == 4
    await recommend(world, 5)
    await comes_to(world, 5, revision)
    holders = {
        entry["manager"]
        for entry in (await deployment(world, revision))["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    }
    assert holders == {names.FIELD_MANAGER}
    assert {pod["metadata"]["uid"] for pod in await world.pods(Role.DECODE, revision)} >= before


async def expect_the_count_to_outlive_restarts_and_repairs(
    world: World, revision: str, operator: OperatorProcess, operators: Operators
) -> None:
    operator.kill()
    await recommend(world, 3)
    await operators.start()
    await comes_to(world, 3, revision)
    path = DEPLOYMENT.path(world.namespace, f"llama-decode-{revision}")
    await world.api.merge(path, {"spec": {"replicas": 2, "progressDeadlineSeconds": 77}})

    async def repaired() -> bool:
        spec = (await deployment(world, revision))["spec"]
        return bool(spec["progressDeadlineSeconds"] != 77 and spec["replicas"] == 3)

    await until(repaired, "the edit is undone")
    assert await recommended(world) == 3


async def expect_a_new_revision_to_have_the_count_from_the_start(world: World, first: str) -> None:
    hpa = (await world.get(AUTOSCALER, "llama-decode") or {})["spec"]
    await world.apply(decode=SCALED, engine={"image": "example/vllm:2"})
    await world.settled()
    second = (await world.status())["revision"]
    await comes_to(world, 3, first, second)
    await recommend(world, 6)
    await comes_to(world, 6, first, second)
    assert await world.serving() == second != first
    await comes_to(world, 6, second)
    assert (await world.get(AUTOSCALER, "llama-decode") or {})["spec"] == hpa
    assert hpa["scaleTargetRef"]["kind"] == SCALER.name
