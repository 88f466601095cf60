"""What the real KEDA does with a PDScaler (docs/adr/0001): its controller, its scale loop and its metrics."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from pdinference.api.names import Role
from pdinference.api.validation import validated
from pdinference.cluster.kinds import AUTOSCALER, SCALED_OBJECT
from pdinference.manifests import RenderSettings
from pdinference.manifests.autoscaler import autoscalers
from pdinference.manifests.settings import KedaSettings
from tests.http_server import served
from tests.integration.external_metrics import ExternalMetrics
from tests.integration.keda import KEDAS_HPA, real_keda, remove_scaled_object
from tests.integration.scale_target import NAME, ScaleTarget
from tests.integration.scaling_world import QUICK, condition
from tests.integration.world import World
from tests.waiting import until


class Prometheus:
    """Answers every query with one number, or with nothing."""

    def __init__(self) -> None:
        self.value: str | None = None
        self.queries = 0

    async def queried(self, times: int) -> None:
        """Wait until KEDA has read the metric a few more times, in its scale loop or for the HPA."""
        enough = self.queries + times

        async def so() -> bool:
            return self.queries >= enough

        await until(so, "KEDA has asked for the load")

    async def answer(self, _request: web.Request) -> web.Response:
        self.queries += 1
        found = [] if self.value is None else [{"metric": {}, "value": [0, self.value]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": found}})


class KedaTarget(ScaleTarget):
    """A PDScaler that KEDA scales by the ScaledObject that the operator would make."""

    def __init__(self, world: World, metrics: ExternalMetrics, prometheus: Prometheus, port: int) -> None:
        super().__init__(world, metrics)
        self.prometheus = prometheus
        self._port = port

    async def take_up(self) -> None:
        scaling = {"maxReplicas": 10, "targets": {"runningRequests": 1}, "behavior": QUICK}
        resource = validated(
            self.world.resource(decode={"autoscaling": scaling}, autoscaling={"source": "KEDA"}),
        )
        settings = RenderSettings(keda=KedaSettings(prometheus=f"http://127.0.0.1:{self._port}"))
        manifest = autoscalers(resource, settings)[Role.DECODE]
        del manifest["metadata"]["ownerReferences"]  # there is no PDInference
        manifest["spec"]["pollingInterval"] = 1
        await self.world.api.create(SCALED_OBJECT.path(self.world.namespace), manifest)

    async def ready(self, status: str) -> None:
        async def so() -> bool:
            found = await self.world.get(SCALED_OBJECT, NAME) or {}
            return bool(condition(found, "Ready").get("status") == status)

        await until(so, f"KEDA says Ready {status}")


@pytest.fixture
async def target(world: World, tmp_path: Path) -> AsyncIterator[KedaTarget]:
    prometheus = Prometheus()
    async with (
        served([web.get("/api/v1/query", prometheus.answer)]) as port,
        real_keda(world, tmp_path) as metrics,
    ):
        yield KedaTarget(world, metrics, prometheus, port)


async def test_keda_follows_the_load_and_starts_no_pod(target: KedaTarget) -> None:
    await target.create()
    await expect_keda_to_wait_for_a_first_count(target)
    await expect_the_load_of_a_limited_role_to_be_followed(target)
    await expect_nothing_to_be_written_asleep_without_load(target)
    await expect_load_to_raise_the_recommendation_asleep(target)
    await expect_a_recommendation_of_none_to_be_raised(target)
    await remove_scaled_object(target.world)
    assert await target.recommended() == 2


async def expect_keda_to_wait_for_a_first_count(target: KedaTarget) -> None:
    target.prometheus.value = "3"
    await target.take_up()
    await target.ready("False")
    assert await target.world.get(AUTOSCALER, KEDAS_HPA) is None
    assert await target.recommended() is None
    await target.recommend(1)
    await target.report(1)
    await target.recommends(3)
    await target.ready("True")


async def expect_the_load_of_a_limited_role_to_be_followed(target: KedaTarget) -> None:
    await target.report(3)
    target.prometheus.value = "8"
    await target.recommends(8)
    hpa = await target.world.get(AUTOSCALER, KEDAS_HPA) or {}
    reference = hpa["spec"]["scaleTargetRef"]
    assert (reference["kind"], reference["name"]) == ("PDScaler", NAME)
    target.prometheus.value = "3.2"
    await target.recommends(3)


async def expect_nothing_to_be_written_asleep_without_load(target: KedaTarget) -> None:
    target.prometheus.value = None
    await target.says("ScalingActive", "FailedGetExternalMetric", name=KEDAS_HPA)
    await target.report(0)
    await target.recommend(1)
    await target.prometheus.queried(3)
    assert await target.recommended() == 1
    target.prometheus.value = "0"
    await target.says("ScalingActive", "ValidMetricFound", name=KEDAS_HPA)
    await target.prometheus.queried(3)
    await target.stays(1)


async def expect_load_to_raise_the_recommendation_asleep(target: KedaTarget) -> None:
    target.prometheus.value = "2"
    await target.recommends(2)
    await target.stays(2)


async def expect_a_recommendation_of_none_to_be_raised(target: KedaTarget) -> None:
    """So 0 cannot mean asleep: KEDA's minReplicaCount is 1."""
    for load, least in (("0", 1), ("2", 2)):
        target.prometheus.value = load
        await target.recommends(least)
        await target.recommend(0)
        await target.recommends(least)
