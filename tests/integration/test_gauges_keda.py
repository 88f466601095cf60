"""The real KEDA, HPA controller and Prometheus scale by the gauges of a real operator."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from tests.integration.keda import real_keda
from tests.integration.operators import Operators
from tests.integration.prometheus import Prometheus, Target, page
from tests.integration.scale_target import recommended
from tests.integration.scaling_world import QUICK, ScalingWorld
from tests.integration.vllm_metrics import FakeVllm, Load
from tests.integration.world import World
from tests.ports import free_port
from tests.waiting import until

OPERATORS = "operators"
QUEUE = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_length", "selector": {"matchLabels": {"queue": "a"}}},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
SCALING = {"maxReplicas": 4, "targets": {"runningRequests": 10, "kvDemand": 80}, "metrics": [QUEUE], "behavior": QUICK}
SCALED: dict[str, Any] = {"decode": {"autoscaling": SCALING}}


class Scaled:
    """A resource that an HPA is to scale, and its first D pod; KEDA can scale it, too."""

    def __init__(self, scaling: ScalingWorld, pod: FakeVllm) -> None:
        self.scaling = scaling
        self.world = scaling.world
        self.pod = pod

    async def recommended(self, replicas: int) -> None:
        """Wait for what KEDA's HPA asks of the PDScaler."""

        async def so() -> bool:
            return await recommended(self.world) == replicas

        await until(so, f"KEDA's HPA asks for {replicas} pods")

    async def source(self, source: str) -> None:
        """Choose what scales, and wait until it does and the other one is gone."""
        await self.world.apply(**SCALED, autoscaling={"source": source, "gpuBudget": 4})

        async def chosen() -> bool:
            found = [await self.world.get(kind, "llama-decode") is not None for kind in (SCALED_OBJECT, AUTOSCALER)]
            return found == [source == "KEDA", source == "Builtin"]

        await until(chosen, f"{source} scales alone")


@pytest.fixture
async def scaled(world: World, operators: Operators, tmp_path: Path) -> AsyncIterator[Scaled]:
    port = free_port()
    scaling = ScalingWorld(world, operators)
    async with page('queue_length{queue="a"} 5\n') as queue, real_keda(world, tmp_path):
        operator = await operators.start(
            f"--keda-prometheus=http://127.0.0.1:{port}", f"--operator-namespace={OPERATORS}", "--scrape-seconds=0.5"
        )
        targets = [
            Target(f"127.0.0.1:{operator.port}", {"namespace": OPERATORS}),
            Target(queue, {"namespace": world.namespace}),
        ]
        async with Prometheus(tmp_path, targets, port=port) as prometheus:
            # At a failed first poll, KEDA reports an error until its next one, 30 s later.
            await until(partial(_measured, prometheus), "Prometheus has the length of the queue")
            await world.apply(**SCALED, autoscaling={"source": "Builtin", "gpuBudget": 4})
            await world.serving()
            (pod,) = await scaling.bring_up(Load(kv_usage=0.3, running=9))
            yield Scaled(scaling, pod)
            operators.kill_all()
    await scaling.close()


async def _measured(prometheus: Prometheus) -> bool:
    return bool(await prometheus.query("queue_length"))


async def test_keda_scales_by_the_gauges_and_not_without_them(scaled: Scaled) -> None:
    world = scaled.world
    revision = (await world.status())["revision"]
    before = {pod["metadata"]["uid"] for pod in await world.pods(Role.DECODE)}
    await scaled.source("KEDA")
    await world.says("Autoscaling", "True ")
    await expect_scaling_within_the_gpu_budget(scaled)
    await expect_an_edit_of_the_scaled_object_to_be_undone(world)
    await expect_nothing_to_change_without_a_load(scaled)
    await scaled.source("Builtin")
    assert await recommended(world) == await scaled.scaling.pods_wanted() == 2
    assert {pod["metadata"]["uid"] for pod in await world.pods(Role.DECODE)} > before
    assert (await world.status())["revision"] == revision


async def expect_scaling_within_the_gpu_budget(scaled: Scaled) -> None:
    scaled.pod.load = Load(kv_usage=0.3, running=40)
    await scaled.recommended(4)
    await scaled.world.says("Autoscaling", "True GpuBudget: ")
    await scaled.scaling.scaled_to(3)  # P has one GPU of the four
    scaled.pod.load = Load(kv_usage=0.1, running=1)
    await scaled.recommended(1)
    await scaled.scaling.scaled_to(1)
    scaled.pod.load = Load(kv_usage=0.3, running=20)
    await scaled.recommended(2)
    await scaled.scaling.scaled_to(2)


async def expect_an_edit_of_the_scaled_object_to_be_undone(world: World) -> None:
    path = SCALED_OBJECT.path(world.namespace, "llama-decode")
    await world.api.merge(path, {"spec": {"maxReplicaCount": 77}})

    async def undone() -> bool:
        return bool((await world.api.get(path))["spec"]["maxReplicaCount"] == SCALING["maxReplicas"])

    await until(undone, "the edit is undone")


async def expect_nothing_to_change_without_a_load(scaled: Scaled) -> None:
    """The user's queue still has a value. It asks for fewer pods than there are, and then the HPA does nothing."""
    for pod in await scaled.scaling.bring_up(Load()):
        await pod.stop()

    async def unknown() -> bool:
        message = (await scaled.world.condition("Autoscaling"))["message"]
        return "cannot be read" in message or "The load is unknown" in message

    await until(unknown, "the condition says that the load is unknown")
    await scaled.scaling.stays(2)
    await scaled.recommended(2)
