"""Reads the load of pods, and serves it to HPAs; on every replica, leader or not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from prometheus_client import CollectorRegistry

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.batch.progress import BatchProgress
from pdinference.cluster.cache import Cache
from pdinference.cluster.client import ApiServer
from pdinference.cluster.kinds import Owner
from pdinference.controller.status_writer import status_of
from pdinference.controller.supervisor import Supervisor
from pdinference.loadmetrics.gauges import SignalGauges
from pdinference.loadmetrics.loads import Loads
from pdinference.loadmetrics.memory_gauges import memory_samples
from pdinference.loadmetrics.metrics import ScrapeMetrics
from pdinference.loadmetrics.metrics_api.access import AccessChecker
from pdinference.loadmetrics.metrics_api.api import MetricsApi
from pdinference.loadmetrics.metrics_api.authentication import RequestHeaderAuthenticator
from pdinference.loadmetrics.metrics_api.registration import Registration
from pdinference.loadmetrics.objective_gauges import GaugeSample, objective_samples
from pdinference.loadmetrics.policies import Policies
from pdinference.loadmetrics.routers import INTERVAL_S, RouterMonitor
from pdinference.loadmetrics.scraping.scrape import Scraper
from pdinference.loadmetrics.start_gauges import start_samples, typical_start_seconds
from pdinference.planning.batch import Progress
from pdinference.planning.observations import Observations
from pdinference.planning.scaling.condition import MeasuredLoad
from pdinference.planning.utilization import Utilization, gpu_price
from pdinference.runtime.settings import OperatorSettings
from pdinference.runtime.tls_endpoint import TlsEndpoint

_PATIENCE_S: Final = 3.0


class LoadMonitor:
    """The scraper, the readers of router pods and batch runners, and the external metrics API.

    Args:
        tls_endpoint: Gets the routes of the metrics API.
        enqueue: Queues the resources whose status may change.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        api: ApiServer,
        cache: Cache,
        tls_endpoint: TlsEndpoint,
        supervisor: Supervisor,
        *,
        registry: CollectorRegistry,
        enqueue: Callable[[Iterable[Owner]], None],
    ) -> None:
        self._cache = cache
        self._enqueue = enqueue
        self._supervisor = supervisor
        self._policies = Policies(cache)
        metrics = ScrapeMetrics(registry)
        self._scraper = Scraper(
            cache,
            self._policies,
            metrics,
            interval=settings.scrape_seconds,
            on_change=lambda owner: enqueue([owner]),
        )
        self._routers = RouterMonitor(
            cache,
            on_change=lambda owner: enqueue([owner]),
            interval=min(INTERVAL_S, settings.scrape_seconds),
            policies=self._policies,
        )
        self._prices = settings.prices
        self._progress = BatchProgress(cache, on_change=lambda owner: enqueue([owner]))
        loads = Loads(self._scraper, self._policies, self._start_seconds)
        self.gauges = SignalGauges(self._policies, loads, self._samples)
        """For /metrics."""
        served = settings.metrics_service if tls_endpoint.clients is not None else None
        self._registration = Registration(api, served, on_change=self._all_changed)
        self._authenticator = (
            RequestHeaderAuthenticator(api, tls_endpoint.clients)
            if served and tls_endpoint.clients is not None
            else None
        )
        if self._authenticator is not None:
            tls_endpoint.add(
                MetricsApi(
                    loads=loads,
                    policies=self._policies,
                    authenticator=self._authenticator,
                    access=AccessChecker(api),
                    metrics=metrics,
                ).routes()
            )

    def observations(self, owner: Owner) -> Observations:
        """What is measured of a resource now. Without I/O."""
        return Observations(
            load=self._load(owner),
            activity=self._routers.activity(owner),
            fell_back=self._routers.fell_back(owner),
            pod_faults=self._routers.faults(owner),
            transfer=self._routers.transfer(owner),
            streams=self._routers.streams(owner),
            utilization=self._utilization(owner),
        )

    def _load(self, owner: Owner) -> MeasuredLoad:
        serves_hpas = self._policies.uses_metrics_api(owner)
        return MeasuredLoad(
            self._registration.problem if serves_hpas else None,
            self._scraper.silent(owner),
            {role: self._scraper.kv_caches(owner, role) for role in ENGINE_ROLES},
            self._scraper.baselines(owner),
            self._scraper.unread(owner) if serves_hpas else frozenset(),
        )

    def _utilization(self, owner: Owner) -> Utilization:
        usage = self._scraper.usage
        used = {role: use for role in ENGINE_ROLES if (use := usage.use(owner, role)) is not None}
        if not used:
            return Utilization()
        prices = {role: gpu_price(self._policies.products(owner, role), self._prices) for role in ENGINE_ROLES}
        return Utilization(used, self._scraper.idle_token_seconds(owner), usage.cost_per_million(owner, prices))

    def _samples(self, owner: Owner) -> Iterator[GaugeSample]:
        streams, utilization = self._routers.streams(owner), self._utilization(owner)
        yield from objective_samples(self._policies.objectives(owner), streams, utilization)
        record = self._cache.resources.get(owner)
        if record is not None:
            status = status_of(record)
            yield from memory_samples(status.plan)
            yield from start_samples(status.roles)

    def _start_seconds(self, owner: Owner, role: Role) -> float | None:
        record = self._cache.resources.get(owner)
        return None if record is None else typical_start_seconds(status_of(record).roles, role)

    def progress(self, uid: str) -> Progress | None:
        """Counts of a batch runner, by the uid of its pod; None while it does not report them."""
        return self._progress.counts(uid)

    async def wait_for_activity(self) -> None:
        """Wait for a short time until router pods were read once, where the status depends on it.

        Otherwise the first statuses would change a moment later.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._routers.first_round_done.wait()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Read until the end of the block."""
        work = {
            "scraper": self._scraper.forever(),
            "routers": self._routers.forever(),
            "batch-progress": self._progress.forever(),
        }
        if self._authenticator is not None:
            work |= {"registration": self._registration.keep(), "front-proxy": self._authenticator.keep()}
        async with AsyncExitStack() as tasks:
            for name, forever in work.items():
                await tasks.enter_async_context(self._supervisor.running(name, forever))
            yield

    def _all_changed(self) -> None:
        self._enqueue(owner for owner, _ in self._policies.autoscaled())
