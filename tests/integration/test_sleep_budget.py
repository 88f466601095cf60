"""Sleep and a GPU budget together, with Kubernetes' own HPA controller; every pod is watched."""

import asyncio

from tests.integration.budgeted import PAIR, Budgeted, D, P, serving
from tests.integration.gpu_watch import GpuWatch
from tests.integration.scaling_world import ScalingWorld
from tests.integration.sleeping import counts, is_ready, router, tell
from tests.waiting import until

SLEEP = {"scaleToZero": {"afterSeconds": 10}}


async def test_roles_that_sleep_free_their_gpus_when_their_pods_are_gone(scaling: ScalingWorld) -> None:
    """P pods have one GPU, D pods two."""
    async with (
        GpuWatch(scaling.world) as gpus,
        router(wait=300) as front,
        serving(scaling, {"gpuBudget": 8, **SLEEP}, **PAIR) as pair,
    ):
        await expect_sleep_with_pods_that_drain(pair, gpus)
        front.observe("p", "d")
        answer = asyncio.create_task(front.post())
        await expect_d_to_wake_when_its_old_pods_are_gone(pair)
        await pair.drain()
        front.observe()
        assert (await answer)[0] == 200
        await expect_another_revision_to_wait_for_the_gpus(pair, gpus)
    assert gpus.most <= 8


async def expect_sleep_with_pods_that_drain(pair: Budgeted, gpus: GpuWatch) -> None:
    pair.running[D] = 60  # wants 6 pods of 2 GPUs each
    await pair.come_to(1, 3)
    await pair.drain()
    await tell(pair.world, (await pair.world.status())["servingRevision"])
    await is_ready(pair.world, "Asleep")
    await pair.come_to(0, 0)
    pair.running[D] = 0
    assert gpus.now == 7, "pods that drain hold their GPUs"


async def expect_d_to_wake_when_its_old_pods_are_gone(pair: Budgeted) -> None:
    """One GPU is free: P starts."""
    world = pair.world
    revision = (await world.status())["servingRevision"]

    async def p_wakes() -> bool:
        return await counts(world, revision) == [1, 0]

    await until(p_wakes, "P is to have its pod")
    await world.says("DecodeReady", "GpuBudget: ", "until other pods have ended")
    await pair.release(P)  # its pod has the name of the one that drained
    await pair.come_to(1, 0)
    assert await p_wakes()
    await pair.release(D)
    await pair.come_to(1, 1)
    await is_ready(world, "Serving")


async def expect_another_revision_to_wait_for_the_gpus(pair: Budgeted, gpus: GpuWatch) -> None:
    world = pair.world
    await is_ready(world, "Asleep")
    await pair.come_to(0, 0)
    assert gpus.now == 3
    first = (await world.status())["servingRevision"]
    await world.apply(autoscaling={"gpuBudget": 5, **SLEEP}, engine={"image": "example/vllm:2"}, **PAIR)
    await world.says("Progressing", "GpuBudget: ", "needs 3 GPUs, 3 are in use", "is 5")
    await pair.release(P, D)
    second = await world.serving()
    assert second != first
    await tell(world, second)
    await is_ready(world, "Asleep")

    async def free() -> bool:
        return gpus.now == 0

    await until(free, "a pair that sleeps has no GPU")
