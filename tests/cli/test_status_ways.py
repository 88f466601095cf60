"""`pdinference status` of a resource whose router chooses ways: metrics of the router's own registry, over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from pdinference.api.names import Role
from pdinference.cli.status.ways import WayUse, way_use
from pdinference.loadmetrics.scraping.unreadable import UnreadableError
from pdinference.router.adaptive import Choice
from pdinference.router.pod import Observed, Pod
from pdinference.router.prefixes import Chain
from pdinference.router.usage import Usage
from pdinference.router.way_metrics import WayMetrics
from pdinference.router.ways import Prediction, Way
from tests.cli.served_cluster import NAMESPACE, ServedCluster, pod, resource
from tests.http_server import served

POD = Pod(Observed("d", "d", Role.DECODE, "d", ready=True))


def choice(way: Way, *, learning: bool = False, uncached: float = 100) -> Choice:
    """A request of 1,000 prompt tokens with a first token predicted after 40 ms."""
    predicted = Prediction(way, POD, uncached, 0.04, 0.007, 1.0)
    return Choice(predicted, (), Chain(), {}, 1000, learning)


def page() -> bytes:
    """Four requests: one to learn, one through P and D, two of D alone that took 50 ms and had 850 tokens cached."""
    registry = CollectorRegistry()
    metrics = WayMetrics(registry)
    metrics.ended(choice(Way.SPLIT, learning=True), 0.1)
    metrics.ended(choice(Way.SPLIT), None)
    for _ in range(2):
        metrics.ended(choice(Way.DECODE), 0.05)
        metrics.answered(choice(Way.DECODE), Usage(1000, 20, 850))
    return generate_latest(registry)


def test_the_metrics_of_routers_are_added_up() -> None:
    found = way_use([page(), page()])
    assert (found.requests, found.reasons) == ({"split": 4, "decode": 4}, {"learning": 2, "cost": 6})
    assert (found.predicted_seconds, found.measured_seconds) == pytest.approx((0.16, 0.2))
    assert found.error_seconds == pytest.approx(0.04)
    assert (found.prompt_tokens, found.expected_cached_tokens, found.cached_tokens) == (4000, 3600, 3400)


@pytest.mark.parametrize(
    "text", [b"", b"x 1\n", b'pdinference_router_ways_total{way="split",reason="cost"} NaN\n', b"\xff\n"]
)
def test_without_requests_there_is_nothing(text: bytes) -> None:
    assert way_use([text]) == WayUse()


def test_a_malformed_page_is_an_error() -> None:
    with pytest.raises(UnreadableError):
        way_use([b'pdinference_router_ways_total{way="split\n'])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ServedCluster]:
    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=page())

    found = ServedCluster()
    found.resources = [resource(router={"disaggregation": "Adaptive"})]
    found.pods = [pod("decode", "d-0"), pod("router", "r-0"), pod("router", "r-1")]
    async with served([web.get("/metrics", metrics)]) as found.pod_port, found.running(tmp_path):
        yield found


async def test_the_status_shows_the_shares_of_the_ways(cluster: ServedCluster) -> None:
    found = await cluster.run_on_terminal(200, "status", "llama")
    assert (
        "ways  50 % P and D, 50 % D alone, 8 requests since the routers started, first tokens predicted 20 % off, "
        "85 % of prompt tokens cached where one pod served (90 % expected)"
    ) in found
    ways = json.loads((await cluster.run("status", "llama", "-o", "json")).stdout)["ways"]
    assert ways["requests"] == {"split": 4, "decode": 4}


async def test_without_the_right_to_connect_a_note_says_so(cluster: ServedCluster) -> None:
    cluster.forward_refusal = 403
    found = await cluster.run("status", "llama")
    assert found.exit_code == 0, found.output
    assert "The ways of requests are not known: " in found.stdout
    assert "You need the right to `get` and `create` the resource pods/portforward." in found.stdout


async def test_a_resource_without_ways_has_none(cluster: ServedCluster) -> None:
    cluster.forward_refusal = 403
    cluster.resources = [resource()]
    found = await cluster.run("status", "llama", "-n", NAMESPACE)
    assert "ways" not in found.stdout
