"""A P instance of two pods, one on each node, with half of every layer on each."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import NAME, Serving
from e2e.install import apply
from e2e.requests import Answer, complete
from e2e.transfer import Transfer, transfer
from e2e.waiting import wait_ready, wait_until
from pdinference.api.names import LABEL_NAME, LABEL_NODE_RANK, LABEL_ROLE, Role

pytestmark = pytest.mark.timeout(1200)

WIDE = "wide"
HOSTNAME = "kubernetes.io/hostname"
BLOCK = 128
"""Tokens in a KV block on CPU; the tokenizer makes a token of each byte."""


@pytest.fixture(scope="module")
def hosts(serving: Serving) -> list[str]:
    """The nodes of the cluster that pods may run on."""
    nodes = serving.kubectl.get("nodes")["items"]
    return [node["metadata"]["labels"][HOSTNAME] for node in nodes if not node["spec"].get("taints")]


@pytest.fixture(scope="module")
def wide(serving: Serving, hosts: list[str]) -> Iterator[Serving]:
    """The tiny example with a tensor rank of P on each node; D has as many ranks, in one pod."""
    document = copy.deepcopy(serving.example)
    document["metadata"]["name"] = WIDE
    document["spec"]["parameter"] |= {
        "parallelism": {"tensor": 2, "nodes": 2},
        "nodePools": [{"nodeSelector": {HOSTNAME: host}} for host in hosts],
    }
    document["spec"]["decode"]["parallelism"] = {"tensor": 2}
    # With tensor ranks, vLLM compiles a part of the model even if eager, and the image has no compiler.
    document["spec"]["engine"]["env"]["TORCHDYNAMO_DISABLE"] = "1"
    apply(serving.kubectl, document)
    try:
        wait_ready(serving.kubectl, WIDE)
        yield serving
    finally:
        serving.kubectl.run("delete", "pdi", WIDE, "--timeout=60s")
        wait_until("its pods to be gone", lambda: not pods(serving, LABEL_NAME), timeout=240)


def pods(serving: Serving, label: str = LABEL_NODE_RANK) -> list[dict[str, Any]]:
    """The pods of the P instance by node rank, or all that have another label."""
    found: list[dict[str, Any]] = serving.kubectl.get("pods", "-l", f"{LABEL_NAME}={WIDE},{label}")["items"]
    return sorted(found, key=lambda pod: str(pod["metadata"]["labels"].get(LABEL_NODE_RANK)))


def ask(wide: Serving, prompt: str) -> tuple[Answer, Transfer]:
    """Send a prompt through the router; what of its KV cache D had, and from where."""
    before = transfer(wide.kubectl, WIDE)
    with wide.kubectl.port_forward(f"service/{WIDE}", 80) as url:
        answer = complete(url, WIDE, prompt, max_tokens=16, ignore_eos=True)
    return answer, transfer(wide.kubectl, WIDE) - before


def errors_of_decode(wide: Serving) -> str:
    """What D's log says of a transfer that failed."""
    said = wide.kubectl.run("logs", "-l", f"{LABEL_NAME}={WIDE},{LABEL_ROLE}={Role.DECODE}", "--tail=-1")
    return "\n".join(line for line in said.splitlines() if "ERROR" in line)


def test_both_nodes_compute_and_hand_over_their_half(wide: Serving) -> None:
    """The answer is that of the same model on one node, which D could not give with the KV cache of wrong heads."""
    prompt = "What is the KV cache, and who has it? " * 20
    answer, moved = ask(wide, prompt)
    with wide.kubectl.port_forward(f"service/{NAME}", 80) as url:
        assert answer.text == complete(url, NAME, prompt, max_tokens=16, ignore_eos=True).text
    assert moved.failed == 0, errors_of_decode(wide)
    assert moved.computed_on_parameter == answer.prompt_tokens == len(prompt)
    assert moved.moved_to_decode == moved.queried_on_decode > 0
    assert moved.computed_on_decode < BLOCK, "D computes at most what does not fill a block"
    assert moved.bytes > 0


def test_each_node_rank_is_where_its_pool_says(wide: Serving, hosts: list[str]) -> None:
    assert [pod["spec"]["nodeName"] for pod in pods(wide)] == hosts


def test_an_instance_that_loses_a_node_starts_anew_as_a_whole_and_serves_again(wide: Serving) -> None:
    first, second = pods(wide)
    wide.kubectl.run("delete", "pod", second["metadata"]["name"], "--grace-period=0", "--force")

    def formed_anew() -> bool:
        found = pods(wide)
        if len(found) != 2 or found[1]["metadata"]["uid"] == second["metadata"]["uid"]:
            return False
        status = found[0]["status"]["containerStatuses"][0]
        restarted: bool = status["restartCount"] > 0 and status["ready"]
        return restarted and found[0]["metadata"]["uid"] == first["metadata"]["uid"]

    wait_until("both nodes to be together again", formed_anew, timeout=420)
    wait_ready(wide.kubectl, WIDE)
    answer, moved = ask(wide, "Once more, with another prompt. " * 20)
    assert answer.completion_tokens == 16
    assert moved.failed == 0, errors_of_decode(wide)
    assert moved.moved_to_decode == moved.queried_on_decode > 0, "D knows the new ranks of P"
