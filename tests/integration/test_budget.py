"""P and D under one GPU budget and one ratio, with Kubernetes' own HPA controller; every pod is watched."""

from typing import Any

from pdinference.api.names import Role
from pdinference.cluster.kinds import STATEFUL_SET
from tests.integration.budgeted import SCALED, TWO_GPUS, D, P, held, serving
from tests.integration.gpu_watch import GpuWatch
from tests.integration.operators import Operators
from tests.integration.scaling_world import ScalingWorld, condition
from tests.integration.world import until


async def test_the_budget_moves_between_the_roles_and_is_never_exceeded(
    scaling: ScalingWorld, operators: Operators
) -> None:
    async with (
        GpuWatch(scaling.world) as gpus,
        serving(scaling, {"gpuBudget": 8}, parameter=SCALED, decode=TWO_GPUS) as pair,
    ):
        pair.drains = True
        pair.running[D] = 60  # wants 6 pods of 2 GPUs each
        await pair.recommends(D, 6)
        operators.kill_all()  # at whatever write it was
        await scaling.start()
        await pair.come_to(1, 3)
        await pair.says("Autoscaling", "GpuBudget", "D: 6 pods recommended, 3 allocated: 7 of the 8 GPUs")
        await expect_limited(scaling, D, allocated=3, reason="GpuBudget")
        pair.running = {P: 60, D: 10}
        await pair.come_to(2, 1)  # and no more, as long as the pods of D drain
        assert len(await pair.leaving(D)) == 2
        operators.kill_all()
        await scaling.start()
        await scaling.looks(3)
        assert await pair.counts() == (2, 1)
        await pair.release(D)
        await pair.come_to(6, 1)
        assert await ranges(scaling) == [(1, 6), (1, 6)]
    assert gpus.most == 8


async def expect_limited(scaling: ScalingWorld, role: Role, *, allocated: int, reason: str) -> None:
    """Wait until the scale target reports that fewer pods are allocated than recommended, with the reason."""

    async def limited() -> bool:
        scaler = await scaling.scaler(role)
        limit = condition(scaler, "Limited")
        return (scaler["status"].get("replicas"), limit.get("status"), limit.get("reason")) == (
            allocated,
            "True",
            reason,
        )

    await until(limited, f"{role} has {allocated} pods because of {reason}")


async def ranges(scaling: ScalingWorld) -> list[tuple[int, int]]:
    """The ranges of both HPAs."""
    specs = [(await scaling.hpa(role))["spec"] for role in (P, D)]
    return [(spec["minReplicas"], spec["maxReplicas"]) for spec in specs]


async def test_a_role_pulls_the_other_along_and_both_go_down_again(scaling: ScalingWorld) -> None:
    """Once the counts fit the load, no reconcile writes anything."""
    band = {"ratio": {"min": {"parameter": 1, "decode": 2}, "max": {"parameter": 2, "decode": 1}}}
    async with serving(scaling, {"gpuBudget": 12, **band}, parameter=SCALED, decode=SCALED) as pair:
        pair.running[D] = 60
        await pair.come_to(3, 6)
        await pair.says("Autoscaling", "Ratio", "P: 1 pods recommended, 3 allocated: spec.autoscaling.ratio")
        await scaling.looks(3)
        assert await pair.counts() == (3, 6)
        mark = scaling.world.audit_mark()
        await scaling.looks(3)
        assert not scaling.world.writes(mark)
        pair.running[D] = 0
        await pair.come_to(1, 1)


async def test_a_second_pair_waits_until_it_fits(scaling: ScalingWorld) -> None:
    """P and D have 3 GPUs together, so that two pairs need 6."""
    async with (
        GpuWatch(scaling.world) as gpus,
        serving(scaling, {"gpuBudget": 5}, parameter=SCALED, decode=TWO_GPUS) as pair,
    ):
        world = scaling.world
        first = (await world.status())["servingRevision"]
        changed: dict[str, Any] = {"parameter": SCALED, "decode": TWO_GPUS, "engine": {"image": "example/vllm:2"}}
        await world.apply(autoscaling={"gpuBudget": 5}, **changed)
        await world.settled()
        await pair.says("Progressing", "GpuBudget", "needs 3 GPUs, 3 are in use", "is 5. Raise it to 6", first)
        pair.running[P] = 30
        await pair.come_to(3, 1)  # the old pair scales on
        assert (await world.status())["servingRevision"] == first
        pair.running[P] = 0
        await pair.come_to(1, 1)
        assert gpus.most == 5
        await world.apply(autoscaling={"gpuBudget": 6}, **changed)
        second = await world.serving()
        assert second != first
        await pair.come_to(1, 1)
    assert gpus.most == 6


async def test_a_pair_is_recreated_only_when_the_old_pods_are_gone(scaling: ScalingWorld) -> None:
    recreate = {"strategy": "Recreate"}
    async with (
        GpuWatch(scaling.world) as gpus,
        serving(scaling, {"gpuBudget": 3}, parameter=SCALED, decode=TWO_GPUS, rollout=recreate) as pair,
    ):
        pair.drains = True
        await until(lambda: held(pair), "both pods would drain")
        world = scaling.world
        changed: dict[str, Any] = {"parameter": SCALED, "decode": TWO_GPUS, "engine": {"image": "example/vllm:2"}}
        await world.apply(autoscaling={"gpuBudget": 3}, rollout=recreate, **changed)
        await pair.says("Progressing", "GpuBudget", "when the remaining pods have ended")
        await pair.come_to(0, 0)
        for role in (P, D):
            await pair.release(role)
        await world.serving()
    assert gpus.most == 3


async def test_p_instances_of_several_nodes_come_and_go_whole(scaling: ScalingWorld) -> None:
    """Each P instance has 2 pods with 2 GPUs each, and D pods have 4 GPUs."""
    spec = {
        "parameter": {**SCALED, "parallelism": {"tensor": 4, "nodes": 2}},
        "decode": {**SCALED, "parallelism": {"tensor": 4}},
    }
    async with GpuWatch(scaling.world) as gpus, serving(scaling, {"gpuBudget": 14}, **spec) as pair:
        revision = (await scaling.world.status())["servingRevision"]

        async def further_nodes() -> int:
            found = await scaling.world.get(STATEFUL_SET, f"llama-node1-{revision}") or {}
            count: int = found["status"].get("currentReplicas", 0)
            return count

        async def whole(count: int) -> bool:
            return await further_nodes() == count

        pair.running[P] = 60
        await pair.come_to(2, 1)
        await until(lambda: whole(2), "each instance has its second node")
        await pair.says("Autoscaling", "GpuBudget", "P: 6 pods recommended, 2 allocated: 12 of the 14 GPUs")
        await scaling.looks(3)
        assert await pair.counts() == (2, 1)
        pair.running[P] = 0
        await pair.come_to(1, 1)
        await until(lambda: whole(1), "the second instance is gone whole")
    assert gpus.most == 12
