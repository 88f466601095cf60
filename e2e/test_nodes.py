"""A P instance of two pods, one on each node, with half of every layer on each."""

from collections.abc import Iterator

import pytest

from e2e.conftest import Serving
from e2e.nodes import alone, ask_until_connected, errors_of_decode, handed_over, hosts, pods, served
from e2e.transfer import BLOCK
from e2e.waiting import wait_ready, wait_until

pytestmark = pytest.mark.timeout(2400)

WIDE = "wide"
PROMPTS = [
    f"{subject}, and who has it? " * 20 for subject in ("What is the KV cache", "Where is it", "What is a block")
]


@pytest.fixture(scope="module")
def wide(serving: Serving) -> Iterator[Serving]:
    """A tensor rank of P on each node; D has as many ranks, in one pod."""
    with served(serving, WIDE, {"tensor": 2, "nodes": 2}, tensor=2) as it:
        yield it


def test_both_nodes_compute_and_hand_over_their_half(wide: Serving) -> None:
    """With the KV cache of wrong heads, D could not give the right answer."""
    prompt, answer, moved = ask_until_connected(wide, WIDE, PROMPTS)
    assert answer.text == alone(wide, prompt)
    assert handed_over(moved, prompt), (moved, errors_of_decode(wide, WIDE))
    assert moved.bytes > 0


def test_each_node_rank_is_where_its_pool_says(wide: Serving) -> None:
    assert [pod["spec"]["nodeName"] for pod in pods(wide, WIDE)] == hosts(wide)


def test_an_instance_that_loses_a_node_restarts_and_serves_again(wide: Serving) -> None:
    first, second = pods(wide, WIDE)
    wide.kubectl.run("delete", "pod", second["metadata"]["name"], "--grace-period=0", "--force")

    def formed_anew() -> bool:
        found = pods(wide, WIDE)
        if len(found) != 2 or found[1]["metadata"]["uid"] == second["metadata"]["uid"]:
            return False
        status = found[0]["status"]["containerStatuses"][0]
        restarted: bool = status["restartCount"] > 0 and status["ready"]
        return restarted and found[0]["metadata"]["uid"] == first["metadata"]["uid"]

    wait_until("both nodes to be together again", formed_anew, timeout=420)
    wait_ready(wide.kubectl, WIDE)
    _, answer, moved = ask_until_connected(wide, WIDE, (f"Again: {prompt}" for prompt in PROMPTS))
    assert answer.completion_tokens == 16
    assert moved.failed == 0, errors_of_decode(wide, WIDE)
    assert moved.moved_to_decode > 0, "D knows the new ranks of P"
    # A canary may ask meanwhile for a prompt that D has but for its last token, which vLLM computes in any case.
    assert moved.queried_on_decode - moved.moved_to_decode < BLOCK
