"""Autoscaling on real parts: vLLM's own load, the operator's metrics API from its chart, Kubernetes' own HPA."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from e2e.conftest import NAME, Serving
from e2e.console import say
from e2e.faults import ENDS, kill_operators
from e2e.install import OPERATOR_NAMESPACE, apply
from e2e.load import Shape, load
from e2e.requests import Answer, complete
from e2e.test_serving import edited
from e2e.transfer import transfer
from e2e.waiting import conditions, wait_until
from pdinference.api.names import ENGINE_ROLES, LABEL_NAME, LABEL_ROLE, Role

pytestmark = [pytest.mark.timeout(2400), pytest.mark.usefixtures("without_autoscaling_after")]

_QUEUE = Shape(clients=8, words=(250,), tokens=2)
"""Long prompts and short answers, more at a time than one P pod can take: they wait in P and nowhere else."""


def scaled(serving: Serving, role: Role, calm_seconds: int = 15, **autoscaling: Any) -> dict[str, Any]:
    """The example with one or two pods of a role; the second goes when it was not needed for so many seconds."""
    down = {"stabilizationWindowSeconds": calm_seconds, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
    scaling = {"maxReplicas": 2, "behavior": {"scaleDown": down}, **autoscaling}
    return edited(serving, **{role.value: {"autoscaling": scaling}})


def on_kv_demand(amount: str) -> list[dict[str, Any]]:
    """Metrics for D: a thousandth of this cache is 262 tokens, half a request of the load."""
    selector = {"matchLabels": {LABEL_NAME: NAME, LABEL_ROLE: Role.DECODE.value}}
    external = {
        "metric": {"name": "pdinference_kv_demand", "selector": selector},
        "target": {"type": "AverageValue", "averageValue": amount},
    }
    return [{"type": "External", "external": external}]


def pods_of(serving: Serving, role: Role) -> dict[str, int]:
    """What the status says of the pods of a role."""
    found: dict[str, int] = serving.resource()["status"]["roles"][role.value]
    return found


def staying(serving: Serving, role: Role) -> set[str]:
    """The pods of a role that are not about to go."""
    found = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME},{LABEL_ROLE}={role}")["items"]
    return {pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]}


@contextmanager
def no_operator(serving: Serving) -> Iterator[None]:
    """From when Kubernetes' HPA has noticed that nobody tells the load, until somebody does again.

    From its first look without a value on, the HPA sees the same as after minutes.
    """
    replicas = operator(serving)["spec"]["replicas"]
    scale_operator(serving, 0)
    try:
        wait_until("a blind HPA", lambda: sees(serving) == "False")
        yield
    finally:
        scale_operator(serving, replicas)
    wait_until("an HPA that sees", lambda: sees(serving) == "True")


def operator(serving: Serving) -> dict[str, Any]:
    """Its Deployment."""
    (found,) = serving.kubectl.get("deployments", "-n", OPERATOR_NAMESPACE)["items"]
    deployment: dict[str, Any] = found
    return deployment


def scale_operator(serving: Serving, replicas: int) -> None:
    name = operator(serving)["metadata"]["name"]
    serving.kubectl.run("scale", "deployment", name, "-n", OPERATOR_NAMESPACE, f"--replicas={replicas}")
    wait_until("the operator to be so many", lambda: operator(serving)["status"].get("readyReplicas", 0) == replicas)


def sees(serving: Serving) -> str:
    """Whether the HPA knows the load; empty as long as it has not looked, or is not there."""
    conditions = [c for hpa in serving.kubectl.get("hpa")["items"] for c in hpa["status"].get("conditions", [])]
    return next((str(c["status"]) for c in conditions if c["type"] == "ScalingActive"), "")


def test_d_follows_its_kv_cache_up_and_down_and_no_request_fails(serving: Serving) -> None:
    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=Shape()) as client:
        apply(serving.kubectl, scaled(serving, Role.DECODE, metrics=on_kv_demand("1m")))
        wait_until("two D pods", lambda: pods_of(serving, Role.DECODE)["ready"] == 2, timeout=240)
        assert conditions(serving.resource())["Autoscaling"]["status"] == "True"

        assert kill_operators(serving.cluster)
        client.wait_for(more=20)
        assert pods_of(serving, Role.DECODE)["desired"] == 2

        apply(serving.kubectl, scaled(serving, Role.DECODE, metrics=on_kv_demand("1")))
        wait_until("one D pod", lambda: pods_of(serving, Role.DECODE)["replicas"] == 1, timeout=240)
        client.wait_for(more=10)
        assert client.unanswered() == []


def test_p_follows_its_queue_and_ends_after_its_kv_cache_was_pulled(serving: Serving) -> None:
    """The operator is away while there are two; the second P pod leaves while requests wait in it."""
    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_QUEUE) as client:
        # Half a prompt, so that one that waits is enough, however quick the machine.
        apply(serving.kubectl, scaled(serving, Role.PARAMETER, calm_seconds=600, targets={"queuedPromptTokens": 500}))
        wait_until("two P pods", lambda: pods_of(serving, Role.PARAMETER)["ready"] == 2, timeout=240)
        told = serving.resource()["status"]["roles"][Role.PARAMETER.value]["scaling"]
        assert told.startswith("queuedPromptTokens"), told
        client.wait_for(more=20)
        with no_operator(serving):
            client.wait_for(more=20)
            assert pods_of(serving, Role.PARAMETER)["desired"] == 2

        before = transfer(serving.kubectl, NAME)
        pods = staying(serving, Role.PARAMETER)
        with ExitStack() as stack:
            logs = {pod: stack.enter_context(serving.kubectl.log_of(pod)) for pod in pods}
            apply(serving.kubectl, scaled(serving, Role.PARAMETER, targets={"queuedPromptTokens": 1_000_000}))
            wait_until("one P pod", lambda: pods_of(serving, Role.PARAMETER)["replicas"] == 1, timeout=240)
            client.wait_for(more=20)
            assert client.unanswered() == []
            (left,) = pods - staying(serving, Role.PARAMETER)
            log = logs[left]()
            assert ENDS in log, "it ended by itself, not by the kubelet's SIGKILL"
            assert "expired KV blocks" not in log
        moved = transfer(serving.kubectl, NAME) - before
        assert moved.failed == 0
        assert moved.moved_to_decode == moved.queried_on_decode > 0


def test_a_pair_that_nobody_asks_sleeps_and_requests_wake_it(serving: Serving) -> None:
    sleep = {"scaleToZero": {"afterSeconds": 10, "maxWaitSeconds": 300}}
    one = {"autoscaling": {"maxReplicas": 1}}
    apply(serving.kubectl, edited(serving, autoscaling=sleep, parameter=one, decode=one))
    wait_until("the pair to sleep", lambda: ready(serving)["reason"] == "Asleep", timeout=240)
    assert ready(serving)["status"] == "True"
    wait_until("no P and no D pod", lambda: not engine_pods(serving), timeout=120)
    assert all(pods_of(serving, role)["desired"] == 0 for role in ENGINE_ROLES)

    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url, ThreadPoolExecutor(2) as clients:

        def ask(number: int) -> Answer:
            return complete(url, NAME, f"{number} " * 130, max_tokens=8, ignore_eos=True, timeout=300)

        answers = list(clients.map(ask, range(2)))
    say(f"answered after {max(answer.seconds for answer in answers):.0f} s, the start of P and D included")
    assert [answer.completion_tokens for answer in answers] == [8, 8]
    wait_until("the status to say so", lambda: ready(serving)["reason"] == "Serving")
    events = serving.kubectl.get("events", f"--field-selector=involvedObject.name={NAME}")["items"]
    assert {"FellAsleep", "WokeUp"} <= {event["reason"] for event in events}


def ready(serving: Serving) -> dict[str, Any]:
    return conditions(serving.resource())["Ready"]


def engine_pods(serving: Serving) -> list[dict[str, Any]]:
    """P and D pods, those included that are about to go."""
    found = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={NAME}")["items"]
    return [pod for pod in found if pod["metadata"]["labels"][LABEL_ROLE] in ENGINE_ROLES]
