"""The gauges on the operator's /metrics, computed from known pods."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.kinds import POD, RESOURCE
from pdinference.loadmetrics.gauges import SignalGauges
from pdinference.loadmetrics.loads import Loads
from pdinference.loadmetrics.metrics import ScrapeMetrics
from pdinference.loadmetrics.policies import Policies
from pdinference.loadmetrics.scraping.scrape import Scraper
from pdinference.loadmetrics.scraping.window import TimedReading
from pdinference.planning.scaling.signals import METRICS, Signal
from tests.controllers import owned
from tests.loadmetrics.autoscaled import Autoscaled
from tests.loadmetrics.readings import lengths, told

SCALED = {"autoscaling": {"maxReplicas": 3}}
BEFORE = told(prefill=lengths(0, 0), inter_token=lengths(0, 0), generation_tokens=0.0)
AFTER = told(
    kv_usage=0.5,
    waiting=4.0,
    running=10.0,
    prompt_lengths=lengths(9000, 9),
    generation_tokens=3000.0,
    inter_token=lengths(60, 3000),
    prefill=lengths(15, 30),
)
"""What a pod reports half a minute later."""


class Pods(Autoscaled):
    """Pods that have answered, and the gauges that follow from it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        policies = Policies(self.cache)
        metrics = ScrapeMetrics(CollectorRegistry())
        self.scraper = Scraper(self.cache, policies, metrics, on_change=lambda _: None)
        self.gauges = SignalGauges(policies, Loads(self.scraper, policies, clock=lambda: self.now))

    def serve(self, name: str, namespace: str = "ns", *roles: Role, **spec: Any) -> None:
        """A resource with one pod of each of these roles."""
        metadata = {**self.metadata(name), "namespace": namespace, "generation": 1}
        body = {"metadata": metadata, "spec": {"model": {"source": {"path": "/m"}}, **spec}}
        self.cache.observe(RESOURCE, body, deleted=False)
        for role in roles:
            labels = names.role_selector(name, role, "rev")
            pod = owned({**self.metadata(f"{name}-{role}"), "namespace": namespace, "labels": labels})
            status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
            self.cache.observe(POD, {"metadata": pod, "spec": {"containers": []}, "status": status}, deleted=False)
            window = self.scraper._windows[namespace, f"{name}-{role}", ""]
            for at, reading in ((self.now - 30, BEFORE), (self.now, AFTER)):
                window.add(TimedReading(at, datetime.now(UTC), reading))

    async def samples(self) -> dict[tuple[str, str, str, str], float]:
        """By metric, namespace, name and role."""
        return {
            (
                sample.name,
                sample.labels["inference_namespace"],
                sample.labels["inference_name"],
                sample.labels["inference_role"],
            ): sample.value
            for family in text_string_to_metric_families(await self.gauges.text())
            for sample in family.samples
        }


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.mark.parametrize("source", [None, "Builtin", "KEDA", "PrometheusAdapter"])
async def test_every_signal_of_every_autoscaled_role_has_a_sample(pods: Pods, source: str | None) -> None:
    chosen = {"autoscaling": {"source": source}} if source else {}
    pods.serve("llama", "ns", Role.PARAMETER, Role.DECODE, decode=SCALED, **chosen)
    found = await pods.samples()
    assert {(namespace, name, role) for _, namespace, name, role in found} == {("ns", "llama", "decode")}
    known = {
        Signal.KV_USAGE: 0.5,
        Signal.WAITING_REQUESTS: 4,
        Signal.RUNNING_REQUESTS: 10,
        Signal.QUEUED_PROMPT_TOKENS: 4000,
        Signal.GENERATION_TOKENS_PER_SECOND: 100,
        Signal.PROMPT_TOKENS_PER_SECOND: 0,
    }
    assert {signal: found[signal, "ns", "llama", "decode"] for signal in known} == known
    assert {metric for metric, *_ in found} >= set(Signal)
    assert {metric for metric, *_ in found} <= set(METRICS)


async def test_what_is_not_autoscaled_has_none(pods: Pods) -> None:
    pods.serve("llama", "ns", Role.DECODE)
    pods.serve("stopped", "ns", Role.DECODE, decode={"replicas": 0, **SCALED})
    assert await pods.gauges.text() == ""


async def test_a_load_that_is_not_known_has_no_sample(pods: Pods) -> None:
    pods.serve("llama", "ns", Role.DECODE, decode=SCALED)
    pods.now += 21  # the last reading is older than three scrapes
    assert await pods.samples() == {}


async def test_resources_and_roles_of_one_metric_stand_together(pods: Pods) -> None:
    """Prometheus' text format wants all samples of a metric in one group."""
    for name, namespace in (("a", "x"), ("b", "y")):
        pods.serve(name, namespace, *names.ENGINE_ROLES, parameter=SCALED, decode=SCALED)
    lines = (await pods.gauges.text()).splitlines()
    metrics = [line.split("{")[0] if not line.startswith("#") else line.split()[2] for line in lines]
    assert metrics == sorted(metrics, key=metrics.index)
    assert len(await pods.samples()) == len([line for line in lines if not line.startswith("#")])


async def test_many_callers_at_once_cost_one_computation(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    pods.serve("llama", "ns", Role.DECODE, decode=SCALED)
    now = time.monotonic()
    monkeypatch.setattr("pdinference.loadmetrics.gauges.time.monotonic", lambda: now)
    first = await pods.gauges.text()
    pods.now += 21
    assert await pods.gauges.text() is first
    now += 1.1
    assert await pods.gauges.text() == ""
