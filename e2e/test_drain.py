"""P and D pods are deleted while requests are under way in them: every answer ends whole, before the pod does.

The engine of the pod stands still from before the deletion until vLLM has received SIGTERM. Otherwise a quick machine
would finish everything during `preStop`, and nothing would be left to drain.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from e2e.conftest import NAME, Serving
from e2e.faults import DRAINS, ENDS, standing_still
from e2e.install import apply
from e2e.load import Load, Shape, load
from e2e.test_serving import edited, pods, settled
from e2e.transfer import transfer
from e2e.waiting import wait_until
from pdinference.api.names import LABEL_ROLE, Role

pytestmark = pytest.mark.timeout(2400)

_DRAIN_SECONDS = 60
_LONG = Shape(clients=4, words=40, tokens=400)
"""Answers of several hundred decode steps, of which each pod of two gets some."""
_SIGTERM = "[shutdown]"
"""How all lines begin that vLLM writes while it ends."""
_QUIET_SECONDS = 15
"""Far more than such an answer takes: if none ends for so long, all are in the pod that stands still."""


def _has_two(serving: Serving, role: Role) -> bool:
    return len(of(serving, role)) == 2


@pytest.fixture(scope="module")
def two_of_each(serving: Serving) -> Iterator[Serving]:
    """Two P and two D pods, so that new requests have somewhere to go."""
    two = {"replicas": 2, "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}}}
    old = settled(serving)["status"]["revision"]
    apply(serving.kubectl, edited(serving, parameter=two, decode=two, rollout={"drainSeconds": _DRAIN_SECONDS}))
    settled(serving, revision_differs_from=old)
    for role in (Role.PARAMETER, Role.DECODE):
        wait_until(f"two pods of {role}", partial(_has_two, serving, role), timeout=240)
    yield serving
    apply(serving.kubectl, serving.example)
    settled(serving)


def of(serving: Serving, role: Role) -> list[dict[str, Any]]:
    """The pods of a role that are ready and stay."""
    found = [pod for pod in pods(serving).values() if pod["metadata"]["labels"][LABEL_ROLE] == role]
    return [pod for pod in found if all(status["ready"] for status in pod["status"].get("containerStatuses", [{}]))]


def drained(serving: Serving, pod: dict[str, Any], client: Load) -> str:
    """Delete a pod whose engine stands still; everything that it wrote until its end."""
    name = pod["metadata"]["name"]
    with serving.kubectl.log_of(name) as log:
        with standing_still(serving.cluster, pod):
            wait_until("requests to be stuck in the pod", stuck(client), timeout=120)
            serving.kubectl.run("delete", "pod", name, "--wait=false")
            wait_until("SIGTERM", lambda: _SIGTERM in serving.kubectl.run("logs", name), timeout=120)
        return log()


def stuck(client: Load) -> Callable[[], bool]:
    """Whether a request is in the pod that stands still: many later ones have overtaken it, or all are in there."""
    ended, quiet_since = -1, time.monotonic()

    def found() -> bool:
        nonlocal ended, quiet_since
        seen = client.report()
        if len(seen.ended) != ended:
            ended, quiet_since = len(seen.ended), time.monotonic()
        quiet = time.monotonic() - quiet_since > _QUIET_SECONDS
        return seen.overtaken >= 2 * _LONG.clients or (quiet and len(seen.open) == _LONG.clients)

    return found


@pytest.mark.parametrize("role", [Role.DECODE, Role.PARAMETER])
def test_a_pod_that_is_deleted_with_requests_under_way_ends_them_whole(two_of_each: Serving, role: Role) -> None:
    serving = two_of_each
    wait_until("two pods", lambda: len(of(serving, role)) == 2, timeout=240)
    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_LONG) as client:
        client.wait_for(more=4)
        before = transfer(serving.kubectl, NAME)
        log = drained(serving, of(serving, role)[0], client)
        assert DRAINS in log, "requests were under way at SIGTERM"
        assert ENDS in log, "it ended by itself, not by the kubelet's SIGKILL"
        assert "expired KV blocks" not in log
        client.wait_for(more=4)
        assert client.unanswered() == []
    assert (transfer(serving.kubectl, NAME) - before).failed == 0
