"""The path HostLocal: P and D share a pod, first with a container for each engine, then with our launcher in one.

The tests share one resource, which moves from one rendering to the next under load, and back at the end.
"""

import copy
import uuid
from functools import partial
from typing import Any

import httpx
import pytest

from e2e import faults
from e2e.conftest import NAME, Serving
from e2e.install import apply
from e2e.load import Shape, load
from e2e.load_report import Report
from e2e.nodes import hosts
from e2e.requests import chat
from e2e.test_serving import pods, settled
from e2e.transfer import BLOCK, samples, transfer
from e2e.waiting import conditions, wait_until
from pdinference.api.engines import PodEngine, engines_of
from pdinference.api.names import LABEL_NAME, LABEL_REVISION, LABEL_ROLE, Role

pytestmark = pytest.mark.timeout(2400)

DEVICE = "example.com/accelerator"
ENGINES = {"parameter": 1, "decode": 2}
_MIXED = Shape(clients=4, words=(20, 120), tokens=100)
_REFUSED = (httpx.TransportError, httpx.HTTPStatusError)


def apart(serving: Serving) -> dict[str, Any]:
    """The tiny model with all engines in one pod, each in its container. A stream may move to the other D."""
    document = copy.deepcopy(serving.example)
    spec = document["spec"]
    spec["transfer"] = {"path": "HostLocal", "hostLocal": ENGINES}
    spec["router"] = {"migration": True}
    for role in ("parameter", "decode"):
        spec[role]["resources"]["requests"]["cpu"] = "100m"  # two such pods share a small node while they change
    return document


def launched(serving: Serving) -> dict[str, Any]:
    """The same with devices of a device plug-in, which only one container can get. vLLM does not look for them."""
    document = apart(serving)
    for role in ("parameter", "decode"):
        document["spec"][role]["accelerator"] = {"resourceName": DEVICE}
    document["spec"]["engine"]["env"] |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    return document


@pytest.fixture(scope="module")
def devices(serving: Serving) -> None:
    """As many devices on one node as a pod needs, published as documented for extended resources."""
    patch = f'{{"status": {{"capacity": {{"{DEVICE}": "{sum(ENGINES.values())}"}}}}}}'
    serving.kubectl.run("patch", "node", hosts(serving)[0], "--subresource=status", "-p", patch)


def move(serving: Serving, document: dict[str, Any]) -> None:
    """Roll a document out under load, of which no request may be lost."""
    old = settled(serving)["status"]["revision"]
    with load(serving.kubectl, serving.url, NAME, serving.images.operator) as client:
        apply(serving.kubectl, document)
        settled(serving, revision_differs_from=old)
        client.wait_for(more=8)
        assert client.unanswered() == []


def pod_of(serving: Serving) -> dict[str, Any]:
    """The one pod with engines of the serving revision."""
    revision = serving.resource()["status"]["servingRevision"]
    labels = [(pod["metadata"]["labels"], pod) for pod in pods(serving).values()]
    (pod,) = (pod for own, pod in labels if own[LABEL_ROLE] != Role.ROUTER and own[LABEL_REVISION] == revision)
    return pod


def engine(pod: dict[str, Any], name: str) -> PodEngine:
    (found,) = (one for one in engines_of(pod) if one.port_name == name)
    return found


def restarts(serving: Serving) -> dict[str, int]:
    return {one["name"]: one["restartCount"] for one in pod_of(serving)["status"]["containerStatuses"]}


def completed(serving: Serving, name: str) -> float | None:
    """Requests that an engine has completed since its start; None while it does not answer."""
    pod = pod_of(serving)
    try:
        found = dict(samples(serving.kubectl, pod["metadata"]["name"], engine(pod, name).port))
    except _REFUSED:
        return None
    return found.get("vllm:e2e_request_latency_seconds_count", 0)


def is_down(serving: Serving, name: str) -> bool:
    return completed(serving, name) is None


def expect_no_loss_from_the_death_of(serving: Serving, name: str) -> Report:
    """Kill an engine under load. It starts again and gets requests, and none of these is lost."""
    with load(serving.kubectl, serving.url, NAME, serving.images.operator, shape=_MIXED) as client:
        wait_until(f"{name} to complete requests", partial(completed, serving, name), timeout=120)
        pod = pod_of(serving)
        faults.kill_engine(serving.cluster, pod, engine(pod, name))
        wait_until(f"{name} to be gone", partial(is_down, serving, name), timeout=60)
        wait_until(f"{name} to complete requests again", partial(completed, serving, name), timeout=300)
        assert client.unanswered() == []
        return client.report()


def expect_a_transfer(serving: Serving) -> None:
    """KV cache of a prompt moves from P to a D of the same pod, and the condition says so."""
    before = transfer(serving.kubectl, NAME)
    with serving.kubectl.port_forward(f"service/{NAME}", 80) as url:
        answer = chat(url, NAME, f"{uuid.uuid4().hex} What is the KV cache? " * 20, max_tokens=16)
    done = transfer(serving.kubectl, NAME) - before
    assert done.computed_on_parameter == answer.prompt_tokens
    assert done.moved_to_decode == done.queried_on_decode > 0
    assert done.computed_on_decode < BLOCK, "D computes at most what does not fill a block"
    assert done.bytes > 0
    assert done.failed == 0

    def verified() -> bool:
        resource = serving.resource()
        condition = conditions(resource).get("KVTransfer", {})
        return condition.get("reason") == "Verified" and resource["status"]["transfer"].get("path") == "HostLocal"

    wait_until("KVTransfer to be Verified", verified, timeout=120)


def test_p_and_d_move_into_one_pod_and_no_request_fails(serving: Serving) -> None:
    move(serving, apart(serving))
    assert [one.container for one in engines_of(pod_of(serving))] == ["decode-0", "decode-1", "parameter-0"]
    assert not serving.kubectl.get("statefulsets", "-l", f"{LABEL_NAME}={NAME}")["items"]
    expect_a_transfer(serving)


def test_p_dies_alone_in_its_container_and_d_serves_on(serving: Serving) -> None:
    report = expect_no_loss_from_the_death_of(serving, "parameter-0")
    assert report.prefilled_by_decode > 0, "D computed prompts while P was away"
    name = pod_of(serving)["metadata"]["name"]
    said = [serving.kubectl.run("logs", name, "--container", each) for each in ("decode-0", "decode-1")]
    assert any("Removed engine" in log for log in said), "D let go of the P that was gone"
    assert restarts(serving) == {"decode-0": 0, "decode-1": 0, "parameter-0": 1}


@pytest.mark.usefixtures("devices")
def test_d_dies_alone_under_the_launcher_and_starts_again(serving: Serving) -> None:
    move(serving, launched(serving))
    expect_a_transfer(serving)
    expect_no_loss_from_the_death_of(serving, "decode-1")
    assert restarts(serving) == {"vllm": 0}


def test_p_and_d_move_apart_again_and_no_request_fails(serving: Serving) -> None:
    """The launcher ends by itself when vLLM has completed its requests."""
    with serving.kubectl.log_of(pod_of(serving)["metadata"]["name"]) as log:
        move(serving, serving.example)
        assert "decode-0: " in log()
    assert conditions(serving.resource())["ParameterReady"]["reason"] == "AllReady"
