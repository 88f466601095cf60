"""The real KEDA, HPA controller and Prometheus scale by the gauges of a real operator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.build import binary
from pdinference.cluster.kinds import SCALED_OBJECT, SCALER
from tests.integration.external_metrics import ExternalMetrics
from tests.integration.keda import Keda
from tests.integration.operator_process import free_port
from tests.integration.operators import Operators
from tests.integration.prometheus import Page, Prometheus, Target
from tests.integration.scaling_world import ScalingWorld
from tests.integration.vllm_metrics import FakeVllm, Load
from tests.integration.world import World, until

OPERATORS = "operators"
QUICK = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 1}]}
QUEUE = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_length", "selector": {"matchLabels": {"queue": "a"}}},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
SCALED: dict[str, Any] = {
    "autoscaling": {
        "maxReplicas": 4,
        "targets": {"runningRequests": 10, "kvDemand": 80},
        "metrics": [QUEUE],
        "behavior": {"scaleUp": QUICK, "scaleDown": QUICK},
    }
}


class Scaled:
    """A resource that KEDA scales, and its first D pod."""

    def __init__(self, scaling: ScalingWorld, pod: FakeVllm) -> None:
        self.scaling = scaling
        self.pod = pod

    async def recommended(self, replicas: int) -> None:
        """Wait for what KEDA's HPA asks of the PDScaler."""

        async def so() -> bool:
            found = await self.scaling.world.get(SCALER, "llama-decode") or {}
            return bool(found["spec"].get("replicas") == replicas)

        await until(so, f"KEDA's HPA asks for {replicas} pods")


@asynccontextmanager
async def keda(world: World, folder: Path) -> AsyncIterator[None]:
    """KEDA's controller and its metrics, in the place of the operator's metrics API."""
    await Keda(world).install()
    port = free_port()
    async with ExternalMetrics(world, folder) as metrics:
        metrics.behind = f"http://127.0.0.1:{port}"
        with (folder / "keda.log").open("wb") as log:
            line = (str(binary("keda")), str(world.cluster.kubeconfig), world.namespace, f"127.0.0.1:{port}")
            process = await asyncio.create_subprocess_exec(*line, stdout=log, stderr=log)
        try:
            yield
            await world.delete(SCALED_OBJECT, "llama-decode")

            async def gone() -> bool:
                return await world.get(SCALED_OBJECT, "llama-decode") is None

            await until(gone, "KEDA has removed its finalizer")
        finally:
            process.terminate()
            await process.wait()


@pytest.fixture
async def scaled(world: World, operators: Operators, tmp_path: Path) -> AsyncIterator[Scaled]:
    port = free_port()
    operator = await operators.start(
        f"--keda-prometheus=http://127.0.0.1:{port}", f"--operator-namespace={OPERATORS}", "--scrape-seconds=0.5"
    )
    scaling = ScalingWorld(world, operators)
    async with Page('queue_length{queue="a"} 5\n') as queue:
        targets = [
            Target(f"127.0.0.1:{operator.port}", {"namespace": OPERATORS}),
            Target(queue.address, {"namespace": world.namespace}),
        ]
        async with Prometheus(tmp_path, targets, port=port) as prometheus, keda(world, tmp_path):
            # At a failed first poll, KEDA reports an error until its next one, 30 s later.
            await until(partial(_measured, prometheus), "Prometheus has the length of the queue")
            await world.apply(decode=SCALED, autoscaling={"source": "KEDA", "gpuBudget": 4})
            await world.serving()
            (pod,) = await scaling.bring_up(Load(kv_usage=0.3, running=9))
            yield Scaled(scaling, pod)
            operators.kill_all()
    await scaling.close()


async def _measured(prometheus: Prometheus) -> bool:
    return bool(await prometheus.query("queue_length"))


async def autoscaling_says(world: World, *words: str) -> None:
    """Wait until the condition Autoscaling has one of these words; a wait in vain says what it had."""
    said: list[str] = []

    async def so() -> bool:
        found = await world.condition("Autoscaling")
        said[:] = [f"{found.get('status')} {found.get('reason')} {found.get('message')}"]
        return any(word in said[0] for word in words)

    try:
        await until(so, f"Autoscaling says {' or '.join(words)}")
    except AssertionError as error:
        raise AssertionError(said) from error


async def test_keda_scales_by_the_gauges_within_the_gpu_budget(scaled: Scaled) -> None:
    world = scaled.scaling.world
    await autoscaling_says(world, "True")
    scaled.pod.load = Load(kv_usage=0.3, running=20)
    await scaled.recommended(2)
    await scaled.scaling.scaled_to(2)
    scaled.pod.load = Load(kv_usage=0.3, running=40)
    await scaled.recommended(4)
    await autoscaling_says(world, "True GpuBudget")
    await scaled.scaling.scaled_to(3)  # P has one GPU of the four
    scaled.pod.load = Load(kv_usage=0.1, running=1)
    await scaled.recommended(1)
    await scaled.scaling.scaled_to(1)


async def test_without_a_load_keda_changes_nothing(scaled: Scaled) -> None:
    scaled.pod.load = Load(kv_usage=0.3, running=20)
    await scaled.recommended(2)
    await scaled.scaling.scaled_to(2)
    for pod in await scaled.scaling.bring_up(Load()):
        await pod.stop()
    # The user's queue still has a value. It asks for fewer pods than there are, and then the HPA does nothing.
    await autoscaling_says(
        scaled.scaling.world, "cannot be read", "False FailedGetExternalMetric D: The load is unknown"
    )
    await scaled.scaling.looks(3)
    await scaled.recommended(2)
