"""Sleep and a GPU budget together, with Kubernetes' own HPA controller; every pod is watched."""

import asyncio
from typing import Any

import aiohttp

from pdinference.activator.gate import Gate
from pdinference.api.names import ENGINE_ROLES
from tests.integration.budgeted import SCALED, TWO_GPUS, D, P, held, serving
from tests.integration.gpu_watch import GpuWatch
from tests.integration.scaling_world import ScalingWorld
from tests.integration.sleeping import Router, activator, counts, is_ready, tell
from tests.integration.world import until

TOGETHER: dict[str, Any] = {"gpuBudget": 8, "scaleToZero": {"afterSeconds": 10}}
PAIR: dict[str, Any] = {"parameter": SCALED, "decode": TWO_GPUS}


async def test_a_sleeping_revision_frees_its_budget_for_another_revision(scaling: ScalingWorld) -> None:
    router = Router()
    async with (
        GpuWatch(scaling.world) as gpus,
        activator(router, Gate(limit=10, max_wait=300)),
        serving(scaling, TOGETHER, **PAIR) as pair,
    ):
        world = scaling.world
        first = (await world.status())["servingRevision"]
        pair.drains = True
        pair.running[D] = 60  # wants 6 pods of 2 GPUs each
        await pair.come_to(1, 3)
        pair.running = {P: 0, D: 0}
        await tell(world, first)
        await is_ready(world, "Asleep")
        await pair.come_to(0, 0)
        assert gpus.now == 7, "pods that drain hold their GPUs"
        await world.apply(autoscaling=TOGETHER, engine={"image": "example/vllm:2"}, **PAIR)
        await world.settled()
        await pair.says("Progressing", "GpuBudget", "needs 3 GPUs, 7 are in use", "is 8")
        for role in ENGINE_ROLES:
            await pair.release(role)
        second = await world.serving()
        assert second != first
        await tell(world, second)
        await is_ready(world, "Asleep")

        async def free() -> bool:
            return gpus.now == 0

        await until(free, "a pair that sleeps has no GPU")
    assert gpus.most == 7


async def test_a_pair_that_wakes_waits_for_the_gpus_of_its_old_pods(scaling: ScalingWorld) -> None:
    """P pods have one GPU, D pods two, and one GPU is free: P starts, and D when its old pods are gone."""
    router = Router()
    async with (
        GpuWatch(scaling.world) as gpus,
        activator(router, Gate(limit=10, max_wait=300)) as url,
        aiohttp.ClientSession() as client,
        serving(scaling, TOGETHER, **PAIR) as pair,
    ):
        world = scaling.world
        revision = (await world.status())["servingRevision"]
        pair.drains = True
        pair.running[D] = 60  # wants 6 pods of 2 GPUs each
        await pair.come_to(1, 3)
        await until(lambda: held(pair), "all pods would drain")
        await tell(world, revision)
        await is_ready(world, "Asleep")
        await pair.come_to(0, 0)
        pair.running[D] = 0
        assert gpus.now == 7, "pods that drain hold their GPUs"

        router.pair = False
        answer = asyncio.create_task(client.post(f"{url}/v1/completions", json={"prompt": "Hello"}))

        async def p_wakes() -> bool:
            return await counts(world, revision) == [1, 0]

        await until(p_wakes, "P is to have its pod")
        await pair.says("DecodeReady", "GpuBudget", "until other pods have ended")
        await pair.release(P)  # its pod has the name of the one that drained
        await pair.come_to(1, 0)
        assert await counts(world, revision) == [1, 0]
        await pair.release(D)
        await pair.come_to(1, 1)
        await is_ready(world, "Serving")
        router.pair = True
        assert (await answer).status == 200
    assert gpus.most <= 8
