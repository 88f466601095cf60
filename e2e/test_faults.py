"""Faults of the request path, each under a load of mixed requests: no request fails, and none is cut silently.

A stream that has begun when its D pod fails ends with an error event. With `router.migration` and a second D pod it
goes on instead, so that no request fails at all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e import faults
from e2e.conftest import NAME, Serving
from e2e.faults import DRAINS, ENDS, Packets, cut_off, lost_node, restarts, standing_still
from e2e.install import apply
from e2e.load import Load, Shape, load
from e2e.nodes import HOSTNAME, hosts
from e2e.test_serving import edited, pods, settled
from e2e.transfer import samples, transfer
from e2e.waiting import conditions, wait_until
from pdinference.api.names import ENGINE_PORT, LABEL_ROLE, Role

pytestmark = pytest.mark.timeout(2400)

_MIXED = Shape(clients=4, words=(20, 120), pause=1.0)
_FEW = Shape(clients=2, words=(20, 120), pause=1.0)
"""Leaves cores for the start of a pod that the test waits for."""
_LONG = Shape(clients=4, words=(20, 120), tokens=200, pause=0.5)
"""Answers of hundreds of decode steps, so that each of two D pods always has some under way."""
_AGAIN = 1000
"""Tokens of the answers that are compared with those without a fault."""
_SIGTERM = "[shutdown]"
"""How all lines begin that vLLM writes while it ends."""


@pytest.fixture
def one_of_each(serving: Serving) -> Serving:
    """One P, one D and one router pod."""
    settled(serving)
    return serving


@pytest.fixture(scope="class")
def two_of_d(serving: Serving) -> Iterator[Serving]:
    """One P, two D and two router pods, and streams that may move."""
    settled(serving)
    apply(serving.kubectl, edited(serving, decode={"replicas": 2}, router={"replicas": 2, "migration": True}))
    wait_for(serving, Role.DECODE, 2)
    wait_until("the routers", lambda: settled(serving) and len(running(serving, Role.ROUTER)) == 2, timeout=240)
    yield serving
    apply(serving.kubectl, serving.example)
    settled(serving)


def running(serving: Serving, role: Role) -> list[dict[str, Any]]:
    """The pods of a role that are ready and stay."""
    found = [pod for pod in pods(serving).values() if pod["metadata"]["labels"][LABEL_ROLE] == role]
    return [pod for pod in found if conditions(pod).get("Ready", {}).get("status") == "True"]


def nodes(serving: Serving, role: Role) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in running(serving, role)}


def wait_for(serving: Serving, role: Role, count: int) -> None:
    wait_until(f"{count} {role} pods", lambda: len(running(serving, role)) == count, timeout=240)


@contextmanager
def killed(serving: Serving, role: Role, count: int = 1) -> Iterator[None]:
    """Kill the containers of one of so many pods. At the end, all are ready."""
    wait_for(serving, role, count)
    pod = running(serving, role)[0]
    before = restarts(pod)
    faults.kill(serving.cluster, pod)
    wait_until("a restart", lambda: restarts(pods(serving)[pod["metadata"]["uid"]]) > before, timeout=120)
    yield
    wait_for(serving, role, count)


def failures(client: Load, *, but: str = "nothing") -> list[str]:
    """Requests that were not answered whole and in time, without those that ended in a certain way."""
    return [failure for failure in client.unanswered() if f": {but} after" not in failure]


def expect_the_same_texts(client: Load) -> None:
    """The last answers of a load are those of undisturbed requests."""
    texts = client.report().texts
    latest = dict(list(texts.items())[-(_AGAIN // client.settings.tokens) :])
    assert client.again(latest).texts == latest


def test_no_request_fails_although_the_only_p_pod_does(one_of_each: Serving) -> None:
    serving, cluster = one_of_each, one_of_each.cluster
    (parameter,), (router,) = running(serving, Role.PARAMETER), running(serving, Role.ROUTER)
    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_MIXED) as client:

        def expect_d_to_compute_prompts(more: int = 4) -> None:
            goal = client.report().prefilled_by_decode + more
            wait_until("D to compute prompts", lambda: client.report().prefilled_by_decode >= goal, timeout=180)

        with faults.answering_500(cluster, parameter):
            expect_d_to_compute_prompts()
        for packets in Packets:
            with cut_off(cluster, parameter, router, packets=packets):
                expect_d_to_compute_prompts()
        with standing_still(cluster, parameter, whole=True):
            expect_d_to_compute_prompts()
        with killed(serving, Role.PARAMETER):
            expect_d_to_compute_prompts()
            wait_until("the condition", lambda: decode_computes(serving), timeout=120)
        client.wait_for(more=8)
        assert failures(client) == []
        expect_the_same_texts(client)


def decode_computes(serving: Serving) -> bool:
    """Whether the conditions say so, and that requests are answered."""
    found = conditions(serving.resource())
    return found.get("DecodeComputesPrompts", {}).get("status") == "True" and found["Ready"]["status"] == "True"


def test_a_pair_that_stays_broken_is_repaired_and_no_request_fails(one_of_each: Serving) -> None:
    """D gets no packet of P's address any more. P is restarted, which gives it another one; the only D is not."""
    serving = one_of_each
    (parameter,), (decode,) = running(serving, Role.PARAMETER), running(serving, Role.DECODE)

    def repair() -> dict[str, Any]:
        return serving.resource()["status"]["transfer"].get("repair") or {}

    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_FEW) as client:
        with cut_off(serving.cluster, decode, parameter, packets=Packets.DROP):
            client.wait_for(more=12)  # they do not wait for their KV cache
            wait_until("a restart of P", lambda: repair().get("outcome") == "Pending", timeout=240)
            wait_until("the repair", lambda: repair()["outcome"] == "Repaired", timeout=300)
        client.wait_for(more=4)
        assert failures(client) == []
        expect_the_same_texts(client)
    assert repair()["pods"] == [parameter["metadata"]["name"]]
    assert [pod["metadata"]["uid"] for pod in running(serving, Role.DECODE)] == [decode["metadata"]["uid"]]
    message = conditions(serving.resource())["KVTransfer"]["message"]
    assert "restart" not in message


def test_with_one_d_pod_only_begun_streams_fail_and_say_so(one_of_each: Serving) -> None:
    serving = one_of_each
    (decode,), (router,) = running(serving, Role.DECODE), running(serving, Role.ROUTER)
    found = f"decode pod {decode['metadata']['name']} failed request"
    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_LONG) as client:
        before = serving.kubectl.run("logs", router["metadata"]["name"]).count(found)
        with standing_still(serving.cluster, decode, whole=True):
            wait_until(
                "the router to find the fault",
                lambda: serving.kubectl.run("logs", router["metadata"]["name"]).count(found) > before,
                timeout=120,
            )
        client.wait_for(more=6)
        with killed(serving, Role.DECODE):
            pass
        client.wait_for(more=6)
        assert failures(client, but="error_event") == []
        assert client.report().outcomes["error_event"] <= 2 * _LONG.clients
        expect_the_same_texts(client)


def requests_at(serving: Serving, pod: dict[str, Any]) -> float:
    """Requests that run at a D pod."""
    return dict(samples(serving.kubectl, pod["metadata"]["name"], ENGINE_PORT))["vllm:num_requests_running"]


def drained(serving: Serving, pod: dict[str, Any]) -> str:
    """Delete a pod and have its engine stand still until SIGTERM; everything that it wrote until its end.

    Otherwise a quick machine would finish everything during `preStop`, and nothing would be left to drain. The router
    sends nothing new to a pod that was deleted. What an engine at a standstill got would be refused after SIGTERM,
    which does not happen to one that runs.
    """
    name = pod["metadata"]["name"]
    with serving.kubectl.log_of(name) as log:
        serving.kubectl.run("delete", "pod", name, "--wait=false")
        with standing_still(serving.cluster, pod):
            wait_until("SIGTERM", lambda: _SIGTERM in serving.kubectl.run("logs", name), timeout=120)
        return log()


class TestTwoOfD:
    """They share their pods; a start of a second D pod takes most of a minute."""

    def test_with_two_d_pods_and_migration_no_request_fails(self, two_of_d: Serving) -> None:
        serving, cluster = two_of_d, two_of_d.cluster
        routers = running(serving, Role.ROUTER)
        with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_LONG) as client:
            with cut_off(cluster, running(serving, Role.DECODE)[0], *routers, packets=Packets.DROP):
                client.wait_for(more=12)
            with standing_still(cluster, running(serving, Role.DECODE)[0], whole=True):
                client.wait_for(more=12)
            with killed(serving, Role.DECODE, 2):
                client.wait_for(more=6)
            before = transfer(serving.kubectl, NAME)
            wait_for(serving, Role.DECODE, 2)
            pod = running(serving, Role.DECODE)[0]
            # It gets requests after its canary. A canary may be the one that runs.
            wait_until("requests at the pod", lambda: requests_at(serving, pod) > 1, timeout=240)
            log = drained(serving, pod)
            assert DRAINS in log, "requests were under way at SIGTERM"
            assert ENDS in log, "it ended by itself, not by the kubelet's SIGKILL"
            client.wait_for(more=6)
            assert failures(client) == []
            assert (transfer(serving.kubectl, NAME) - before).failed == 0
            expect_the_same_texts(client)

    def test_a_router_pod_that_is_killed_loses_only_its_own_connections(self, two_of_d: Serving) -> None:
        serving = two_of_d
        with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_LONG) as client:
            with killed(serving, Role.ROUTER, 2):
                client.wait_for(more=6)
            serving.kubectl.run("delete", "pod", running(serving, Role.ROUTER)[0]["metadata"]["name"], "--wait=false")
            client.wait_for(more=6)
            wait_for(serving, Role.ROUTER, 2)
            client.wait_for(more=6)
            # Until its endpoint is removed, connections to a pod without a process are refused. Clients may retry them.
            lost = failures(client, but="refused")
        assert len(lost) <= _LONG.clients, lost

    def test_with_a_pod_of_d_on_each_of_two_nodes_no_request_fails_if_one_node_does(self, two_of_d: Serving) -> None:
        """The node with P is lost. Client and router are on the other one."""
        serving = two_of_d
        (lost,) = nodes(serving, Role.PARAMETER)
        (kept,) = {*hosts(serving)} - {lost}
        router = {"migration": True, "placement": {"nodeSelector": {HOSTNAME: kept}}}
        apply(serving.kubectl, edited(serving, decode={"replicas": 2}, router=router))
        wait_until("the router", lambda: settled(serving) and nodes(serving, Role.ROUTER) == {kept}, timeout=240)
        assert nodes(serving, Role.DECODE) == {lost, kept}
        with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_LONG, node=kept) as client:
            with lost_node(serving.cluster, lost):
                wait_for(serving, Role.DECODE, 1)
                client.wait_for(more=12)
            wait_for(serving, Role.DECODE, 2)
            wait_for(serving, Role.PARAMETER, 1)
            client.wait_for(more=12)
            assert failures(client) == []
            expect_the_same_texts(client)
