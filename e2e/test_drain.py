"""A D pod is deleted while it streams long answers: every answer ends whole, before the pod does.

Its engine stands still from just after the deletion until vLLM has received SIGTERM. Otherwise a quick machine would
finish everything during `preStop`, and nothing would be left to drain.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import NAME, Serving
from e2e.faults import DRAINS, ENDS, standing_still
from e2e.install import apply
from e2e.load import Shape, load
from e2e.test_serving import edited, pods, settled
from e2e.transfer import transfer
from e2e.waiting import wait_until
from pdinference.api.names import LABEL_ROLE, Role

pytestmark = pytest.mark.timeout(2400)

_LONG = Shape(clients=6, words=(20,), tokens=600)
"""Answers of hundreds of decode steps, so that each of two D pods always has some under way."""
_SIGTERM = "[shutdown]"
"""How all lines begin that vLLM writes while it ends."""


@pytest.fixture
def two_d_pods(serving: Serving) -> Iterator[Serving]:
    """Two D pods, so that new requests have somewhere to go."""
    settled(serving)
    apply(serving.kubectl, edited(serving, decode={"replicas": 2}))
    wait_until("two D pods", lambda: len(ready(serving)) == 2, timeout=240)
    yield serving
    apply(serving.kubectl, serving.example)
    settled(serving)


def ready(serving: Serving) -> list[dict[str, Any]]:
    """The D pods that are ready and stay."""
    found = [pod for pod in pods(serving).values() if pod["metadata"]["labels"][LABEL_ROLE] == Role.DECODE]
    return [pod for pod in found if all(status.get("ready") for status in pod["status"].get("containerStatuses", [{}]))]


def drained(serving: Serving, pod: dict[str, Any]) -> str:
    """Delete a pod and have its engine stand still until SIGTERM; everything that it wrote until its end.

    The router sends nothing new to a pod that was deleted. What an engine at a standstill got would be refused after
    SIGTERM, which does not happen to one that runs.
    """
    name = pod["metadata"]["name"]
    with serving.kubectl.log_of(name) as log:
        serving.kubectl.run("delete", "pod", name, "--wait=false")
        with standing_still(serving.cluster, pod):
            wait_until("SIGTERM", lambda: _SIGTERM in serving.kubectl.run("logs", name), timeout=120)
        return log()


def test_a_d_pod_that_is_deleted_while_it_streams_ends_its_answers_whole(two_d_pods: Serving) -> None:
    serving = two_d_pods
    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_LONG) as client:
        client.wait_for(more=6)
        before = transfer(serving.kubectl, NAME)
        log = drained(serving, ready(serving)[0])
        assert DRAINS in log, "requests were under way at SIGTERM"
        assert ENDS in log, "it ended by itself, not by the kubelet's SIGKILL"
        client.wait_for(more=6)
        assert client.unanswered() == []
        moved = transfer(serving.kubectl, NAME) - before
    assert moved.failed == 0
