"""Sleep and a GPU budget together, with Kubernetes' own HPA controller; every pod is watched."""

from typing import Any

from pdinference.activator.gate import Gate
from pdinference.api.names import ENGINE_ROLES
from tests.integration.gpu_watch import GpuWatch
from tests.integration.scaling_world import ScalingWorld
from tests.integration.sleeping import Router, activator, hpas, is_ready, tell
from tests.integration.test_budget import SCALED, TWO_GPUS, D, P, scaling, serving
from tests.integration.world import until

__all__ = ["scaling"]  # a fixture

TOGETHER: dict[str, Any] = {"gpuBudget": 8, "scaleToZero": {"afterSeconds": 10}}
PAIR: dict[str, Any] = {"parameter": SCALED, "decode": TWO_GPUS}


async def test_a_pair_that_sleeps_frees_its_share_and_another_revision_waits_for_it(scaling: ScalingWorld) -> None:
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
        assert not await hpas(world)
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
