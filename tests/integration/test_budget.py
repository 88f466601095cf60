"""P and D under one GPU budget and one ratio, with Kubernetes' own HPA controller; every pod is watched."""

from typing import Any

from pdinference.cluster.kinds import STATEFUL_SET
from tests.integration.budgeted import PAIR, SCALED, Budgeted, D, P, serving
from tests.integration.calm import QUIET_S, calm
from tests.integration.gpu_watch import GpuWatch
from tests.integration.operators import Operators
from tests.integration.scaling_world import ScalingWorld, condition, hpa_looks
from tests.waiting import until


async def test_p_and_d_share_a_budget_and_keep_a_ratio(scaling: ScalingWorld, operators: Operators) -> None:
    """A P pod has one GPU, a D pod two."""
    async with serving(scaling, {"gpuBudget": 8}, **PAIR) as pair:
        await expect_the_budget_to_move_between_the_roles(pair, operators)
        await expect_a_role_to_pull_the_other_along(pair)
        await expect_a_second_revision_to_wait_until_it_fits(pair)
        await expect_recreate_to_wait_for_the_old_pods(pair)


async def expect_the_budget_to_move_between_the_roles(pair: Budgeted, operators: Operators) -> None:
    """It is never exceeded, also when operators are killed."""
    async with GpuWatch(pair.world) as gpus:
        await pair.drain()
        pair.running[D] = 60  # wants 6 pods
        await pair.recommends(D, 6)
        operators.kill_all()  # at whatever write it was
        await pair.scaling.start()
        await pair.come_to(1, 3)
        await pair.world.says("Autoscaling", "GpuBudget: ", "D: 6 pods recommended, 3 allocated: 7 of the 8 GPUs")
        await expect_limited(pair.scaling, allocated=3, reason="GpuBudget")
        pair.running = {P: 60, D: 10}
        await pair.come_to(2, 1)  # and no more, as long as the pods of D drain
        assert len(await pair.leaving(D)) == 2
        operators.kill_all()
        await pair.scaling.start()
        await pair.stays(2, 1)
        await pair.release(P, D)
        await pair.come_to(6, 1)
        specs = [(await pair.scaling.hpa(role))["spec"] for role in (P, D)]
        assert [(spec["minReplicas"], spec["maxReplicas"]) for spec in specs] == [(1, 6), (1, 6)]
        pair.running[P] = 0
        await pair.come_to(1, 1)
    assert gpus.most == 8


async def expect_limited(scaling: ScalingWorld, *, allocated: int, reason: str) -> None:
    """Wait until the scale target of D says that the role has other pods than recommended, and why."""

    async def limited() -> bool:
        scaler = await scaling.scaler()
        limit = condition(scaler, "Limited")
        found = scaler["status"].get("replicas"), limit.get("status"), limit.get("reason")
        return found == (allocated, "True", reason)

    await until(limited, f"D has {allocated} pods because of {reason}")


async def expect_a_role_to_pull_the_other_along(pair: Budgeted) -> None:
    """Once the counts fit the load, no reconcile writes anything."""
    band = {"ratio": {"min": {"parameter": 1, "decode": 2}, "max": {"parameter": 2, "decode": 1}}}
    await pair.world.apply(autoscaling={"gpuBudget": 16, **band}, **PAIR)
    pair.running[D] = 60
    await pair.come_to(3, 6)
    await pair.world.says("Autoscaling", "Ratio: ", "P: 1 pods recommended, 3 allocated: spec.autoscaling.ratio")
    await pair.stays(3, 6)
    await calm(pair.world, QUIET_S, counted=pair.world.writes)  # on a busy machine, statuses of pods come late
    mark = pair.world.audit_mark()
    await hpa_looks(pair.world, 3)
    assert not pair.world.writes(mark)
    pair.running[D] = 0
    await pair.come_to(1, 1)


async def expect_a_second_revision_to_wait_until_it_fits(pair: Budgeted) -> None:
    """P and D have 3 GPUs together, so that two revisions need 6."""
    changed: dict[str, Any] = {**PAIR, "engine": {"image": "example/vllm:2"}}
    world = pair.world
    first = (await world.status())["servingRevision"]
    async with GpuWatch(world) as gpus:
        await world.apply(autoscaling={"gpuBudget": 5}, **changed)
        await world.says("Progressing", "GpuBudget: ", "needs 3 GPUs, 3 are in use", "is 5. Raise it to 6", first)
        pair.running[P] = 30
        await pair.come_to(3, 1)  # the old revision scales on
        assert (await world.status())["servingRevision"] == first
        pair.running[P] = 0
        await pair.come_to(1, 1)
        assert gpus.most == 5
        await world.apply(autoscaling={"gpuBudget": 6}, **changed)
        assert await world.serving() != first
        await pair.come_to(1, 1)
    assert gpus.most == 6


async def expect_recreate_to_wait_for_the_old_pods(pair: Budgeted) -> None:
    changed = {**PAIR, "autoscaling": {"gpuBudget": 3}, "rollout": {"strategy": "Recreate"}}
    await pair.drain()
    async with GpuWatch(pair.world) as gpus:
        await pair.world.apply(engine={"image": "example/vllm:3"}, **changed)
        await pair.world.says("Progressing", "GpuBudget: ", "when the remaining pods have ended")
        await pair.come_to(0, 0)
        await pair.release(P, D)
        await pair.world.serving()
    assert gpus.most == 3


async def test_p_instances_of_several_nodes_come_and_go_whole(scaling: ScalingWorld) -> None:
    """Each P instance has 2 pods with 2 GPUs each, and D pods have 4 GPUs."""
    spec = {
        "parameter": {**SCALED, "parallelism": {"tensor": 4, "nodes": 2}},
        "decode": {**SCALED, "parallelism": {"tensor": 4}},
    }
    async with GpuWatch(scaling.world) as gpus, serving(scaling, {"gpuBudget": 14}, **spec) as pair:
        revision = (await scaling.world.status())["servingRevision"]

        async def whole(count: int) -> bool:
            found = await scaling.world.get(STATEFUL_SET, f"llama-node1-{revision}") or {}
            return bool(found["status"].get("currentReplicas", 0) == count)

        pair.running[P] = 60
        await pair.come_to(2, 1)
        await until(lambda: whole(2), "each instance has its second node")
        await scaling.world.says("Autoscaling", "GpuBudget: ", "P: 6 pods recommended, 2 allocated: 12 of the 14 GPUs")
        await pair.stays(2, 1)
        pair.running[P] = 0
        await pair.come_to(1, 1)
        await until(lambda: whole(1), "the second instance is gone whole")
    assert gpus.most == 12
