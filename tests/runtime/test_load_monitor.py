"""The tasks that read pods are supervised."""

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from pdinference.batch.progress import BatchProgress
from pdinference.cluster.cache import Cache
from pdinference.controller.metrics import Metrics
from pdinference.controller.supervisor import Supervisor
from pdinference.loadmetrics.routers import RouterMonitor
from pdinference.loadmetrics.scraping.scrape import Scraper
from pdinference.runtime.load_monitor import LoadMonitor
from pdinference.runtime.settings import OperatorSettings
from pdinference.runtime.tls_endpoint import TlsEndpoint
from tests.cluster.fake_api import FakeApi

if TYPE_CHECKING:
    from pdinference.cluster.client import ApiServer


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
