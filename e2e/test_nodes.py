"""A P instance of two pods, one on each node, with half of every layer on each."""

from collections.abc import Iterator

import pytest

from e2e.conftest import Serving
from e2e.nodes import alone, ask_until_connected, errors_of_decode, handed_over, hosts, pods, served

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
