"""Scrapes of small servers that play pods, and the resulting loads."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.kinds import POD, SCALER, Owner
from pdinference.loadmetrics.loads import Loads
from pdinference.loadmetrics.metrics import ScrapeMetrics
from pdinference.loadmetrics.policies import Policies
from pdinference.loadmetrics.scraping.scrape import Scraper
from pdinference.loadmetrics.signals import measure
from pdinference.manifests.children import owner_reference
from pdinference.memory.observed import KvCache
from pdinference.planning.scaling.signals import Signal
from tests.controllers import owned
from tests.http_server import served
from tests.loadmetrics.autoscaled import OWNER, Autoscaled

NOBODY_LISTENS = "127.0.0.2"
EARLIER = (Path(__file__).parent / "recorded" / "decode-busy.txt").read_text(encoding="utf-8")
METRICS = (Path(__file__).parent / "recorded" / "decode-later.txt").read_text(encoding="utf-8")


class Pods(Autoscaled):
    """One server; every pod has its address."""

    def __init__(self) -> None:
        super().__init__()
        self.text = METRICS
        self.status = 200
        self.asked = 0
        self.registry = CollectorRegistry()
        self.changed: list[Owner] = []
        self.now = 1000.0
        self.port = 0

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        headers = {"Location": "/metrics"} if self.status == 302 else {}
        return web.Response(text=self.text, status=self.status, headers=headers)

    def pod(
        self,
        name: str,
        *,
        ready: bool = True,
        started: bool = False,
        restarts: int = 0,
        address: str = "127.0.0.1",
        node: int | None = None,
        uid: str = "",
    ) -> None:
        """A D pod; with a node rank, a pod of a P instance of several nodes."""
        labels = names.role_selector("llama", Role.DECODE, "rev")
        labels |= {} if node is None else names.node_labels(Role.PARAMETER, node)
        status = {
            "phase": "Running",
            "podIP": address,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "vllm", "restartCount": restarts, "started": started}],
        }
        metadata = owned({**self.metadata(name), "labels": labels, **({"uid": uid} if uid else {})})
        body = {"metadata": metadata, "status": status}
        self.cache.observe(POD, body, deleted=False)

    def group(self, name: str, revision: str = "rev", *, ready: bool = True) -> None:
        """A D pod with two engines of D and one of P."""
        ports = [{"name": name, "containerPort": self.port} for name in ("decode-0", "decode-1", "parameter-0")]
        status = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "vllm", "ready": ready, "restartCount": 0}],
        }
        body = {
            "metadata": owned({**self.metadata(name), "labels": names.role_selector("llama", Role.DECODE, revision)}),
            "spec": {"containers": [{"name": "vllm", "ports": ports}]},
            "status": status,
        }
        self.cache.observe(POD, body, deleted=False)

    def serves(self, revision: str, baseline_seconds: float | None = None) -> None:
        """The scale target reports this."""
        owner = owner_reference(names.KIND, "llama", "uid-llama")
        metadata = {**self.metadata("llama-decode"), "ownerReferences": [owner]}
        noted = {} if baseline_seconds is None else {"baselineInterTokenMicroseconds": round(baseline_seconds * 1e6)}
        body = {"metadata": metadata, "spec": {"replicas": 1}, "status": {"revision": revision, **noted}}
        self.cache.observe(SCALER, body, deleted=False)


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    """Autoscaled, with one pod."""
    pods = Pods()
    pods.resource(autoscaling={"maxReplicas": 3})
    pods.pod("a")
    async with served([web.get("/metrics", pods.answer)]) as pods.port:
        yield pods


@pytest.fixture
async def scraper(pods: Pods) -> Scraper:
    return Scraper(
        pods.cache,
        Policies(pods.cache),
        ScrapeMetrics(pods.registry),
        on_change=pods.changed.append,
        port=pods.port,
        clock=lambda: pods.now,
    )


async def rounds(pods: Pods, scraper: Scraper, count: int = 1, *, others: bool = False) -> None:
    for _ in range(count):
        pods.now += 5
        await scraper.round(others=others)


def demand(pods: Pods, scraper: Scraper) -> float:
    return measure(Signal.KV_USAGE, scraper.pods(OWNER, Role.DECODE), target=0.8, now=pods.now).value


async def test_pods_of_autoscaled_resources_are_read_all_the_time(pods: Pods, scraper: Scraper) -> None:
    pods.pod("b")
    await rounds(pods, scraper, 3)
    assert pods.asked == 6
    assert demand(pods, scraper) == pytest.approx(2 * 22 / 23)


async def test_of_an_instance_of_several_nodes_the_first_one_tells_the_load(pods: Pods, scraper: Scraper) -> None:
    pods.pod("a", node=0)
    pods.pod("further", node=1)
    await rounds(pods, scraper, 3)
    assert pods.asked == 3
    assert len(scraper.pods(OWNER, Role.PARAMETER)) == 1


async def test_other_pods_are_read_once_for_the_size_of_their_cache(pods: Pods, scraper: Scraper) -> None:
    pods.resource()
    await rounds(pods, scraper)
    assert pods.asked == 0
    await rounds(pods, scraper, 3, others=True)
    assert pods.asked == 1
    assert scraper.kv_caches(OWNER, Role.DECODE) == {"a": KvCache(24, 128)}
    assert pods.changed == [OWNER]
    pods.pod("a", restarts=1)
    await rounds(pods, scraper, others=True)
    assert pods.asked == 2


async def test_silent_pods_are_counted_only_where_an_hpa_goes_by_them(pods: Pods, scraper: Scraper) -> None:
    def silent() -> float | None:
        return pods.registry.get_sample_value("pdinference_silent_pods")

    pods.status = 500
    pods.resource()
    await rounds(pods, scraper, 4, others=True)
    assert silent() == 0
    pods.resource(autoscaling={"maxReplicas": 3})
    await rounds(pods, scraper)
    assert silent() == 1
    pods.resource()
    await rounds(pods, scraper)
    assert silent() == 0


async def test_what_a_pod_told_long_ago_is_no_part_of_a_rate(pods: Pods, scraper: Scraper) -> None:
    """As when its resource was not autoscaled before, or by others, or it was silent for long."""
    pods.resource()
    pods.text = EARLIER
    await rounds(pods, scraper, others=True)
    pods.now += 3600
    pods.resource(autoscaling={"maxReplicas": 3})
    pods.text = METRICS
    await rounds(pods, scraper, 2)
    (load,) = scraper.pods(OWNER, Role.DECODE)
    assert load.window.age(pods.now) == 5
    rate = measure(Signal.GENERATION_TOKENS_PER_SECOND, [load], target=None, now=pods.now)
    assert rate.value == 0, "nothing was generated in the last five seconds"


async def test_a_pod_that_falls_silent_is_told_once_and_again_when_it_is_back(pods: Pods, scraper: Scraper) -> None:
    await rounds(pods, scraper)
    pods.changed.clear()
    pods.status = 500
    await rounds(pods, scraper, 5)
    assert scraper.silent(OWNER) == {Role.PARAMETER: (), Role.DECODE: ("a",)}
    assert pods.changed == [OWNER]
    pods.status = 200
    await rounds(pods, scraper)
    assert scraper.silent(OWNER)[Role.DECODE] == ()
    assert pods.changed == [OWNER, OWNER]


async def test_a_pod_that_keeps_back_what_its_hpa_goes_by_is_as_silent(pods: Pods, scraper: Scraper) -> None:
    pods.resource(autoscaling={"maxReplicas": 3, "targets": {"kvUsage": 80}})
    pods.text = pods.text.replace("vllm:kv_cache_usage_perc", "vllm:of_another_version")
    await rounds(pods, scraper, 3)
    assert scraper.silent(OWNER)[Role.DECODE] == (), "it has just started"
    pods.changed.clear()
    await rounds(pods, scraper, 3)
    assert scraper.silent(OWNER)[Role.DECODE] == ("a",)
    assert pods.changed == [OWNER]
    pods.resource(autoscaling={"maxReplicas": 3, "targets": {"waitingRequests": 8}})
    await rounds(pods, scraper)
    assert scraper.silent(OWNER)[Role.DECODE] == ()
    assert pods.changed == [OWNER, OWNER]


async def test_the_pace_of_idle_pods_is_noted_for_operators_to_come(pods: Pods, scraper: Scraper) -> None:
    pods.text = EARLIER
    await rounds(pods, scraper)
    pods.text = METRICS
    pods.changed.clear()
    await rounds(pods, scraper)
    seen = scraper.baselines(OWNER)["rev"]
    assert scraper.idle_token_seconds(OWNER) == seen > 0
    assert pods.changed == [OWNER]
    pods.serves("rev", seen / 2)
    assert scraper.idle_token_seconds(OWNER) == pytest.approx(seen / 2, rel=0.01)
    pods.serves("gone", seen / 2)
    assert scraper.idle_token_seconds(OWNER) == seen
    pods.resource(autoscaling={"maxReplicas": 3, "targets": {"kvUsage": 80}})
    assert scraper.baselines(OWNER) == {}, "its HPA does not go by that"


@pytest.mark.parametrize(("status", "needed"), [(200, 2), (500, 3)])
async def test_a_role_is_unread_until_rates_are_known_or_reading_has_failed(
    pods: Pods, scraper: Scraper, status: int, needed: int
) -> None:
    pods.status = status
    for done in range(needed):
        assert scraper.unread(OWNER) == {Role.DECODE}, f"after {done} rounds"
        pods.changed.clear()
        await rounds(pods, scraper)
    assert scraper.unread(OWNER) == frozenset()
    assert pods.changed, "the HPA is created at once"


async def test_a_role_without_ready_pods_is_not_being_read(pods: Pods, scraper: Scraper) -> None:
    pods.pod("a", ready=False)
    assert scraper.unread(OWNER) == frozenset()


async def test_a_pod_that_starts_is_not_called_silent(pods: Pods, scraper: Scraper) -> None:
    pods.status = 503
    pods.pod("a", ready=False)
    await rounds(pods, scraper, 5)
    assert scraper.silent(OWNER)[Role.DECODE] == ()
    (load,) = scraper.pods(OWNER, Role.DECODE)
    assert not load.expected


async def test_a_pod_that_hung_before_the_operator_came_is_expected(pods: Pods, scraper: Scraper) -> None:
    """Its startup probe tells it from a pod that never served: a restart of the operator must not shrink the role."""
    pods.resource(autoscaling={"maxReplicas": 3, "targets": {"kvUsage": 90}})
    await rounds(pods, scraper)
    pods.pod("b", ready=False, started=True, address=NOBODY_LISTENS)
    await rounds(pods, scraper, 3)
    loads = scraper.pods(OWNER, Role.DECODE)
    assert all(load.expected for load in loads)
    assert measure(Signal.KV_USAGE, loads, target=0.9, now=pods.now).value == pytest.approx(1.8)


async def test_a_pod_of_the_same_name_begins_anew(pods: Pods, scraper: Scraper) -> None:
    """As the pods of a StatefulSet do."""
    pods.resource(autoscaling={"maxReplicas": 3, "targets": {"kvUsage": 80}})
    pods.text = METRICS.replace("vllm:kv_cache_usage_perc", "vllm:of_another_version")
    await rounds(pods, scraper, 5)
    assert scraper.silent(OWNER)[Role.DECODE] == ("a",)
    pods.status = 503
    pods.pod("a", ready=False, uid="another")
    await rounds(pods, scraper)
    (load,) = scraper.pods(OWNER, Role.DECODE)
    assert not load.expected
    pods.pod("a", uid="another")
    assert scraper.silent(OWNER)[Role.DECODE] == ()


async def test_a_pod_that_restarts_is_still_expected_but_its_numbers_are_gone(pods: Pods, scraper: Scraper) -> None:
    await rounds(pods, scraper, 2)
    pods.status = 503
    pods.pod("a", ready=False, restarts=1)
    await rounds(pods, scraper)
    (load,) = scraper.pods(OWNER, Role.DECODE)
    assert load.expected
    assert load.window.latest(pods.now) is None


@pytest.mark.parametrize("how", [{"address": NOBODY_LISTENS}, {"ready": False}])
async def test_the_last_load_of_a_failed_pod_is_not_counted_twice(
    pods: Pods, scraper: Scraper, how: dict[str, Any]
) -> None:
    pods.pod("b")
    await rounds(pods, scraper)
    assert demand(pods, scraper) == pytest.approx(2 * 22 / 23)
    pods.status = 503
    pods.pod("b", **how)
    await rounds(pods, scraper)
    told = {load.window.latest(pods.now) is not None: load.expected for load in scraper.pods(OWNER, Role.DECODE)}
    assert told == {True: True, False: True}, "the one that answers no more for the moment still counts as it was"


async def test_a_fault_in_what_is_made_of_an_answer_ends_at_its_pod(
    pods: Pods, scraper: Scraper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("pdinference.loadmetrics.scraping.scrape.misses_signals", fails)
    await rounds(pods, scraper, 5)
    assert pods.registry.get_sample_value("pdinference_scrape_failures_total", {"reason": "internal"}) == 5
    assert 0 < caplog.text.count("Traceback") < 5, "logged with its traceback, at a bounded rate"


@pytest.mark.parametrize(("lie", "asked"), [("vllm:num_requests_waiting x\n", 4), (None, 12)])
async def test_a_pod_whose_failures_are_costly_is_read_less_often(
    pods: Pods, scraper: Scraper, lie: str | None, asked: int
) -> None:
    """One that refuses costs nothing, and is read as soon as it is back."""
    pods.text, pods.status = lie or "", 200 if lie else 500
    await rounds(pods, scraper, 12)
    assert pods.asked == asked
    pods.text, pods.status = METRICS, 200
    await rounds(pods, scraper, 6)
    assert scraper.silent(OWNER)[Role.DECODE] == ()


async def test_a_pace_that_is_no_time_for_a_token_is_not_noted(pods: Pods, scraper: Scraper) -> None:
    name = "vllm:inter_token_latency_seconds_"
    for text in (EARLIER, METRICS):
        lines = [line for line in text.splitlines() if not line.startswith((f"{name}sum", f"{name}count"))]
        count = 1 if text is EARLIER else 10**14
        pods.text = "\n".join([*lines, f"{name}sum 1e-12", f"{name}count {count}", ""])
        await rounds(pods, scraper)
    assert scraper.baselines(OWNER) == {}


async def test_pods_that_are_gone_are_forgotten(pods: Pods, scraper: Scraper) -> None:
    await rounds(pods, scraper)
    pods.cache.pods.remove(("ns", "a"), "uid-a", 10**9)
    await rounds(pods, scraper)
    assert scraper.pods(OWNER, Role.DECODE) == []
    assert scraper.kv_caches(OWNER, Role.DECODE) == {}


async def test_each_engine_of_a_pod_is_read_and_the_load_is_that_of_pods(pods: Pods, scraper: Scraper) -> None:
    """The target is that of one engine. An autoscaler counts pods."""
    pods.group("a")
    await rounds(pods, scraper, 3)
    assert pods.asked == 9
    assert (len(scraper.pods(OWNER, Role.DECODE)), len(scraper.pods(OWNER, Role.PARAMETER))) == (2, 1)
    assert scraper.kv_caches(OWNER, Role.PARAMETER) == {"a": KvCache(24, 128)}
    loads = Loads(scraper, Policies(pods.cache), clock=lambda: pods.now)
    assert loads.measured(OWNER, Role.DECODE, Signal.KV_USAGE).value == pytest.approx(22 / 23)


async def test_pods_with_several_engines_that_do_not_serve_yet_do_not_lower_the_load(
    pods: Pods, scraper: Scraper
) -> None:
    """A roll-out to the path HostLocal may take long, or never end. Until then the pods of one engine are counted."""
    pods.serves("rev")
    loads = Loads(scraper, Policies(pods.cache), clock=lambda: pods.now)
    await rounds(pods, scraper, 4)
    before = loads.measured(OWNER, Role.DECODE, Signal.KV_USAGE).value
    pods.group("next-0", "next", ready=False)
    assert loads.measured(OWNER, Role.DECODE, Signal.KV_USAGE).value == pytest.approx(before)
    pods.serves("next")
    assert loads.measured(OWNER, Role.DECODE, Signal.KV_USAGE).value == pytest.approx(before / 2)
