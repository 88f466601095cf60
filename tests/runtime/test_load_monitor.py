"""What is measured of a resource, and the tasks that measure it, which are supervised."""

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from pdinference.api.names import ENGINE_ROLES, PodFault, Verification
from pdinference.batch.progress import BatchProgress
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import RESOURCE, Owner
from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor
from pdinference.loadmetrics.routers import RouterMonitor
from pdinference.loadmetrics.scraping.scrape import Scraper
from pdinference.planning.objectives import StreamCounts
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from pdinference.planning.transfer_measurements import CanaryFacts, TransferFacts
from pdinference.planning.utilization import Utilization
from pdinference.runtime.load_monitor import LoadMonitor
from pdinference.runtime.settings import OperatorSettings
from pdinference.runtime.tls_endpoint import TlsEndpoint
from tests.cluster.fake_api import FakeApi

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer


async def test_memory_and_starts_of_every_resource_have_gauges() -> None:
    cache = Cache()
    memory = {"weightsBytes": 15_000, "kvBytesPerToken": 10, "kvCapacityTokens": 700, "observedKvCapacityTokens": 600}
    metadata = {"name": "llama", "namespace": "ns", "uid": "1", "resourceVersion": "1"}
    phases = {"scheduling": 2, "preparation": 19, "engine": 40}
    start = {"podCreationTime": "2026-11-29T10:00:00Z", "lastSeconds": 44, "typicalSeconds": 61}
    start |= {"typicalPhases": phases}
    status = {
        "plan": {"parameter": memory, "decode": {"weightsBytes": 15_000}},
        "roles": {"decode": {"start": start}},
    }
    body = {"metadata": metadata, "spec": {"model": {"source": {"path": "/m"}}}, "status": status}
    cache.observe(RESOURCE, body, deleted=False)
    metrics, settings = Metrics(), OperatorSettings()
    api, supervisor = cast("ApiServer", FakeApi()), Supervisor(metrics)
    endpoint = TlsEndpoint(settings, api, supervisor, [])
    monitor = LoadMonitor(settings, api, cache, endpoint, supervisor, registry=metrics.registry, enqueue=lambda _: None)
    found = [line for line in (await monitor.gauges.text()).splitlines() if not line.startswith("#")]
    own = 'inference_namespace="ns",inference_name="llama",inference_role'
    assert found == [
        f'pdinference_role_weights_bytes{{{own}="parameter"}} 15000',
        f'pdinference_role_weights_bytes{{{own}="decode"}} 15000',
        f'pdinference_role_kv_cache_bytes{{{own}="parameter"}} 6000',
        f'pdinference_role_last_start_seconds{{{own}="decode"}} 44',
        f'pdinference_role_typical_start_seconds{{{own}="decode"}} 61',
        *(f'pdinference_role_start_{phase}_seconds{{{own}="decode"}} {seconds}' for phase, seconds in phases.items()),
    ]


async def test_what_routers_report_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = {
        "activity": ReportedActivity(held=True, idle_seconds=0),
        "fell_back": True,
        "faults": {"llama-decode-0": PodFault.HUNG},
        "transfer": TransferFacts("r1", CanaryFacts(Verification.OFF, "r1")),
        "streams": StreamCounts(60, (), (), ()),
    }
    for name, fact in reported.items():
        monkeypatch.setattr(RouterMonitor, name, lambda _self, _owner, fact=fact: fact)
    metrics, settings, api = Metrics(), OperatorSettings(), cast("ApiServer", FakeApi())
    supervisor = Supervisor(metrics)
    endpoint = TlsEndpoint(settings, api, supervisor, [])
    monitor = LoadMonitor(
        settings, api, Cache(), endpoint, supervisor, registry=metrics.registry, enqueue=lambda _: None
    )
    found = monitor.observations(Owner("ns", "llama"))
    assert (found.activity, found.fell_back, found.pod_faults, found.transfer, found.streams) == tuple(
        reported.values()
    )
    assert found.load.kv_caches == {role: {} for role in ENGINE_ROLES}
    assert found.utilization == Utilization(), "unknown without objectives and autoscaling"


@pytest.mark.parametrize(
    ("part", "name"), [(Scraper, "scraper"), (RouterMonitor, "routers"), (BatchProgress, "batch-progress")]
)
async def test_what_reads_pods_is_supervised(part: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(_self: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(part, "forever", dies)
    metrics, settings = Metrics(), OperatorSettings()
    api = cast("ApiServer", FakeApi())
    supervisor = Supervisor(metrics)
    tls_endpoint = TlsEndpoint(settings, api, supervisor, [])
    load_monitor = LoadMonitor(
        settings, api, Cache(), tls_endpoint, supervisor, registry=metrics.registry, enqueue=lambda _: None
    )
    async with load_monitor.run():
        while not supervisor.failed:  # noqa: ASYNC110 - what is waited for is in this loop
            await asyncio.sleep(0)
    assert supervisor.failed == [name]
