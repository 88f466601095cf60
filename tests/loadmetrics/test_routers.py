"""The state of routers, read from small servers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from pdinference.api import names
from pdinference.api.names import (
    METRIC_FALLBACK_AGE_SECONDS,
    METRIC_IDLE_SECONDS,
    METRIC_KV_PROMPT_TOKENS,
    METRIC_POD_FAULT,
    METRIC_QUEUED_REQUESTS,
    METRIC_STAGES,
    METRIC_VERIFICATION,
    PodFault,
    Role,
    Verification,
)
from pdinference.cluster.cache import Cache
from pdinference.cluster.kinds import POD, RESOURCE, Owner
from pdinference.loadmetrics.routers import RouterMonitor
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from tests.controllers import owned
from tests.http_server import served

OWNER = Owner("ns", "llama")
SLEEPY = {"scaleToZero": {"afterSeconds": 900}}


class Routers:
    """One server; every router pod has its address."""

    def __init__(self) -> None:
        self.held, self.idle, self.status = 0, 7.5, 200
        self.fallback_age = "+Inf"
        self.transfer = ""
        self.reason = "AllReady"
        self.asked = 0
        self.cache = Cache()
        self.changed: list[Owner] = []
        self.now = 1000.0
        self.port = 0
        self.scales_to_zero = False
        self._version = 0

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        text = f"# TYPE {METRIC_QUEUED_REQUESTS} gauge\n{METRIC_QUEUED_REQUESTS} {self.held}\n"
        text += f"# TYPE {METRIC_IDLE_SECONDS} gauge\n{METRIC_IDLE_SECONDS} {self.idle}\n"
        text += f"# TYPE {METRIC_FALLBACK_AGE_SECONDS} gauge\n{METRIC_FALLBACK_AGE_SECONDS} {self.fallback_age}\n"
        return web.Response(text=text + self.transfer, status=self.status)

    def resource(self, **autoscaling: Any) -> None:
        body: dict[str, Any] = {"metadata": self._metadata("llama"), "spec": {"autoscaling": autoscaling}}
        body["status"] = {"conditions": [{"type": "DecodeReady", "reason": self.reason}]}
        body["metadata"]["generation"] = 1
        self.cache.observe(RESOURCE, body, deleted=False)
        self.scales_to_zero = "scaleToZero" in autoscaling

    def pod(
        self, name: str = "router-0", *, address: str = "127.0.0.1", terminating: bool = False, ready: bool = False
    ) -> None:
        labels = names.role_selector("llama", Role.ROUTER, "rev")
        metadata = owned({**self._metadata(name), "labels": labels})
        if terminating:
            metadata["deletionTimestamp"] = "2026-11-21T00:00:00Z"
        status: dict[str, Any] = {"phase": "Running", "podIP": address}
        status["conditions"] = [{"type": "Ready", "status": str(ready)}]
        if self.scales_to_zero:
            metadata["annotations"] = {names.ANNOTATION_SCALES_TO_ZERO: "true"}
        body = {"metadata": metadata, "spec": {"containers": [{"name": names.ROUTER_CONTAINER}]}, "status": status}
        self.cache.observe(POD, body, deleted=False)

    def _metadata(self, name: str) -> dict[str, Any]:
        self._version += 1
        return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(self._version)}


@pytest.fixture
async def routers() -> AsyncIterator[Routers]:
    routers = Routers()
    async with served([web.get("/metrics", routers.answer)]) as routers.port:
        yield routers


@pytest.fixture
def monitor(routers: Routers) -> RouterMonitor:
    return RouterMonitor(routers.cache, on_change=routers.changed.append, port=routers.port, clock=lambda: routers.now)


async def rounds(monitor: RouterMonitor, count: int = 1) -> None:
    for _ in range(count):
        await monitor.round()


async def test_routers_of_resources_that_do_not_scale_to_zero_are_read_rarely(
    routers: Routers, monitor: RouterMonitor
) -> None:
    routers.resource()
    routers.pod()
    await rounds(monitor, 3)
    assert routers.asked == 1
    routers.now += 31
    await rounds(monitor, 3)
    assert routers.asked == 2


async def test_a_router_that_becomes_ready_is_read_at_once(routers: Routers, monitor: RouterMonitor) -> None:
    """Its canary has ended. Otherwise the status would say `pending` of a revision that serves already."""
    routers.resource()
    routers.pod()
    await rounds(monitor, 3)
    routers.pod(ready=True)
    await rounds(monitor, 3)
    assert routers.asked == 2


async def test_prompts_that_d_computes_are_reported_for_some_minutes(routers: Routers, monitor: RouterMonitor) -> None:
    routers.resource()
    routers.pod()
    assert monitor.fell_back(OWNER) is None
    for age, expected in (("+Inf", False), ("12.5", True), ("299", True), ("301", False), ("NaN", False)):
        routers.fallback_age = age
        routers.now += 31
        await rounds(monitor)
        assert monitor.fell_back(OWNER) is expected, age
    assert routers.changed == [OWNER] * 3, "known, begun, ceased"
    routers.status = 500
    routers.now += 62
    await rounds(monitor)
    assert monitor.fell_back(OWNER) is None


async def test_it_is_told_once_when_requests_begin_to_wait_and_when_they_cease(
    routers: Routers, monitor: RouterMonitor
) -> None:
    routers.resource(**SLEEPY)
    routers.pod()
    assert not monitor.first_round_done.is_set()
    await rounds(monitor, 2)
    assert monitor.first_round_done.is_set()
    assert monitor.activity(OWNER) == ReportedActivity(held=False, idle_seconds=7.5)
    assert routers.changed == [OWNER], "it is known now"
    routers.held, routers.idle = 2, 0
    await rounds(monitor, 2)
    assert monitor.activity(OWNER) == ReportedActivity(held=True, idle_seconds=0)
    assert routers.changed == [OWNER] * 2
    routers.held = 0
    await rounds(monitor, 2)
    assert routers.changed == [OWNER] * 3


async def test_one_pod_that_does_not_tell_is_enough_to_know_nothing(routers: Routers, monitor: RouterMonitor) -> None:
    routers.resource(**SLEEPY)
    routers.pod()
    routers.pod("router-1", address="")
    await rounds(monitor)
    assert monitor.activity(OWNER) is None
    routers.pod("router-1", address="", terminating=True)
    assert monitor.activity(OWNER) == ReportedActivity(held=False, idle_seconds=7.5)


async def test_a_request_that_waits_is_known_whoever_does_not_tell(routers: Routers, monitor: RouterMonitor) -> None:
    routers.resource(**SLEEPY)
    routers.pod()
    routers.pod("router-1", address="")
    routers.held, routers.idle = 1, 0
    await rounds(monitor)
    assert monitor.activity(OWNER) == ReportedActivity(held=True, idle_seconds=0)


async def test_what_is_old_is_not_known(routers: Routers, monitor: RouterMonitor) -> None:
    routers.resource(**SLEEPY)
    routers.pod()
    await rounds(monitor)
    routers.status = 500
    routers.now += 11
    await rounds(monitor)
    assert monitor.activity(OWNER) is None
    assert routers.changed == [OWNER] * 2


async def test_where_nothing_may_sleep_there_is_nothing_to_wait_for(routers: Routers, monitor: RouterMonitor) -> None:
    routers.resource()
    await rounds(monitor)
    assert monitor.first_round_done.is_set()


@pytest.mark.parametrize("lie", ["NaN", "-1", "1e999", "x", "1 2 3"])
async def test_what_is_no_number_is_not_known(routers: Routers, monitor: RouterMonitor, lie: str) -> None:
    routers.resource(**SLEEPY)
    routers.pod()
    routers.idle = lie  # type: ignore[assignment]
    await rounds(monitor)
    assert monitor.activity(OWNER) is None


def transfer(tokens: int, state: str = "verified") -> str:
    return (
        f'{METRIC_KV_PROMPT_TOKENS}{{source="parameter"}} {tokens}\n'
        f'{METRIC_STAGES}_count{{stage="first_token"}} {tokens}\n'
        f'{METRIC_VERIFICATION}{{state="{state}"}} 1\n'
    )


async def test_the_kv_transfer_is_what_one_router_pod_counts(routers: Routers, monitor: RouterMonitor) -> None:
    routers.resource()
    routers.pod()
    await rounds(monitor)
    assert monitor.transfer(OWNER) is None, "an older router"
    routers.pod("router-1")
    for tokens in (1000, 1500, 2000):
        routers.now += 31
        routers.transfer = transfer(tokens)
        await rounds(monitor)
    found = monitor.transfer(OWNER)
    assert found is not None
    assert (found.revision, found.canary.state, found.seconds) == ("rev", Verification.VERIFIED, 62)
    assert (found.counted.parameter_tokens, found.counted.first_tokens) == (1000, 2000), "both pods have the same pods"
    routers.status = 500
    routers.now += 62
    await rounds(monitor)
    assert monitor.transfer(OWNER) is None


async def test_a_change_of_the_kv_transfer_is_reported_and_rest_is_not(
    routers: Routers, monitor: RouterMonitor
) -> None:
    routers.resource()
    routers.pod()
    routers.transfer = transfer(0, "pending")

    async def changes(count: int) -> int:
        routers.changed.clear()
        for _ in range(count):
            routers.now += 31
            await rounds(monitor)
        return len(routers.changed)

    assert await changes(5) == 1, "known"
    routers.transfer = transfer(0)
    assert await changes(1) == 1, "verified"
    routers.transfer = transfer(5000)
    assert await changes(1) == 1, "requests"
    assert await changes(30) <= 5, "their end, and once for each window"


def fault(pod: str, name: str = "hung", value: str = "1.0") -> str:
    return f'{METRIC_POD_FAULT}{{pod="{pod}",fault="{name}"}} {value}\n'


async def test_pods_that_do_not_answer_are_reported_when_they_begin_and_when_they_cease(
    routers: Routers, monitor: RouterMonitor
) -> None:
    routers.resource()
    routers.pod()
    await rounds(monitor)
    routers.changed.clear()
    assert monitor.faults(OWNER) == {}
    routers.transfer = fault("d-0") + fault("d-1", "stalled") + fault("d-2", "hung", "0") + fault("d-3", "other")
    routers.now += 31
    await rounds(monitor, 3)
    assert monitor.faults(OWNER) == {"d-0": PodFault.HUNG, "d-1": PodFault.STALLED}
    assert (routers.asked, routers.changed) == (2, [OWNER])
    routers.now += 6
    await rounds(monitor, 3)
    assert (routers.asked, routers.changed) == (3, [OWNER]), "read again soon, and nothing to write"
    routers.transfer = ""
    routers.now += 6
    await rounds(monitor, 3)
    assert (monitor.faults(OWNER), routers.changed) == ({}, [OWNER] * 2)


async def test_what_routers_that_do_not_report_any_more_said_of_pods_is_forgotten(
    routers: Routers, monitor: RouterMonitor
) -> None:
    routers.resource()
    routers.pod()
    routers.transfer = fault("d-0")
    await rounds(monitor)
    routers.status = 500
    routers.now += 41
    await rounds(monitor)
    assert monitor.faults(OWNER) == {}


async def test_a_router_that_lists_any_number_of_pods_takes_little_memory(
    routers: Routers, monitor: RouterMonitor
) -> None:
    routers.resource()
    routers.pod()
    routers.transfer = "".join(fault(f"d-{one}") for one in range(1000))
    await rounds(monitor)
    assert len(monitor.faults(OWNER)) == 64


async def test_after_a_restart_routers_are_read_before_a_status_that_names_a_pod_changes(
    routers: Routers, monitor: RouterMonitor
) -> None:
    routers.reason = "NotAnswering"
    routers.resource()
    routers.pod()
    monitor._targets()
    assert not monitor.first_round_done.is_set()
    await rounds(monitor)
    assert monitor.first_round_done.is_set()
