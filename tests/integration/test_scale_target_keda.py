"""What the real KEDA does with a PDScaler (docs/adr/0001): its controller, its scale loop and its metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from e2e.cluster.build import binary
from pdinference.api.names import Role, keda_autoscaler
from pdinference.api.validation import validated
from pdinference.cluster.client import Json
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from pdinference.manifests import RenderSettings
from pdinference.manifests.autoscaler import autoscalers
from pdinference.manifests.settings import KedaSettings
from tests.integration.external_metrics import ExternalMetrics
from tests.integration.keda import Keda
from tests.integration.operator_process import free_port
from tests.integration.scale_target import AT_ONCE, NAME, ScaleTarget
from tests.integration.scaling_world import condition
from tests.integration.world import World, until

HPA: Final = keda_autoscaler("llama", Role.DECODE)


class Prometheus:
    """Answers every query with one number, or with nothing."""

    def __init__(self) -> None:
        self.value: str | None = None
        self.queries = 0
        self.port = free_port()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/api/v1/query", self._answer)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def queried(self, times: int) -> None:
        """Wait until KEDA has read the metric a few more times, in its scale loop or for the HPA."""
        enough = self.queries + times

        async def so() -> bool:
            return self.queries >= enough

        await until(so, "KEDA has asked for the load")

    async def _answer(self, _request: web.Request) -> web.Response:
        self.queries += 1
        found = [] if self.value is None else [{"metric": {}, "value": [0, self.value]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": found}})


class KedaTarget(ScaleTarget):
    """A PDScaler that KEDA scales by the ScaledObject that the operator would make."""

    def __init__(self, world: World, metrics: ExternalMetrics, prometheus: Prometheus) -> None:
        super().__init__(world, metrics)
        self.prometheus = prometheus

    async def take_up(self) -> None:
        behavior = {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE}
        scaling = {"maxReplicas": 10, "targets": {"runningRequests": 1}, "behavior": behavior}
        resource = validated(
            self.world.resource(decode={"autoscaling": scaling}, autoscaling={"source": "KEDA"}),
        )
        settings = RenderSettings(keda=KedaSettings(prometheus=f"http://127.0.0.1:{self.prometheus.port}"))
        manifest = autoscalers(resource, settings)[Role.DECODE]
        del manifest["metadata"]["ownerReferences"]  # there is no PDInference
        manifest["spec"]["pollingInterval"] = 1
        await self.world.api.create(SCALED_OBJECT.path(self.world.namespace), manifest)

    async def scaled_object(self) -> Json:
        return await self.world.get(SCALED_OBJECT, NAME) or {}

    async def ready(self, status: str) -> None:
        async def so() -> bool:
            return bool(condition(await self.scaled_object(), "Ready").get("status") == status)

        await until(so, f"KEDA says Ready {status}", within=60)


@pytest.fixture
async def target(world: World, tmp_path: Path) -> AsyncIterator[KedaTarget]:
    await Keda(world).install()
    prometheus, port = Prometheus(), free_port()
    await prometheus.start()
    async with ExternalMetrics(world, tmp_path) as metrics:
        metrics.behind = f"http://127.0.0.1:{port}"
        with (tmp_path / "keda.log").open("wb") as log:
            line = (str(binary("keda")), str(world.cluster.kubeconfig), world.namespace, f"127.0.0.1:{port}")
            process = await asyncio.create_subprocess_exec(*line, stdout=log, stderr=log)
        try:
            await until(lambda: _answers(metrics.behind), "KEDA serves metrics")
            yield KedaTarget(world, metrics, prometheus)
            await _remove(world)
        finally:
            process.terminate()
            await process.wait()
            await prometheus.stop()
            print((tmp_path / "keda.log").read_text())  # noqa: T201 - pytest shows it when the test fails


async def _answers(url: str) -> bool:
    with suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(url):
            return True
    return False


async def _remove(world: World) -> None:
    """Let KEDA remove its finalizer."""
    if await world.get(SCALED_OBJECT, NAME) is not None:
        await world.delete(SCALED_OBJECT, NAME)

    async def gone() -> bool:
        found = await world.get(SCALED_OBJECT, NAME), await world.get(AUTOSCALER, HPA)
        return found == (None, None)

    await until(gone, "the ScaledObject and its HPA are gone")


async def test_kedas_hpa_follows_the_load_of_a_limited_role(target: KedaTarget) -> None:
    await target.create(3)
    await target.report(3)
    target.prometheus.value = "8"
    await target.take_up()
    await target.recommends(8)
    reference = (await target.hpa(HPA))["spec"]["scaleTargetRef"]
    assert (reference["kind"], reference["name"]) == ("PDScaler", NAME)
    target.prometheus.value = "3.2"
    await target.recommends(3)
    await target.ready("True")


async def test_asleep_keda_writes_nothing_without_load(target: KedaTarget) -> None:
    await target.create(1)
    await target.report(0)
    await target.take_up()
    await target.says("ScalingActive", "FailedGetExternalMetric", HPA)
    await target.prometheus.queried(3)
    assert await target.recommended() == 1
    target.prometheus.value = "0"
    await target.says("ScalingActive", "ValidMetricFound", HPA)
    await target.prometheus.queried(3)
    await target.stays(1)


async def test_asleep_load_raises_the_recommendation_alone(target: KedaTarget) -> None:
    await target.create(1)
    await target.report(0)
    target.prometheus.value = "2"
    await target.take_up()
    await target.recommends(2)
    await target.stays(2)


@pytest.mark.parametrize("load", ["0", "2"])
async def test_keda_raises_a_recommendation_of_none_whatever_the_load(target: KedaTarget, load: str) -> None:
    """So 0 cannot mean asleep: KEDA's minReplicaCount is 1."""
    await target.create(1)
    await target.report(0)
    target.prometheus.value = "0"
    await target.take_up()
    await target.ready("True")
    target.prometheus.value = load
    await target.recommend(0)
    await target.recommends(max(1, int(load)))


async def test_keda_waits_for_a_first_count(target: KedaTarget) -> None:
    await target.create()
    target.prometheus.value = "3"
    await target.take_up()
    await target.ready("False")
    assert await target.world.get(AUTOSCALER, HPA) is None
    assert await target.recommended() is None
    await target.recommend(1)
    await target.report(1)
    await target.recommends(3)


async def test_without_its_scaled_object_the_recommendation_stays(target: KedaTarget) -> None:
    await target.create(1)
    await target.report(1)
    target.prometheus.value = "3"
    await target.take_up()
    await target.recommends(3)
    await _remove(target.world)
    assert await target.recommended() == 3
