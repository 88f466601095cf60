"""A P instance of two pods, one on each node: the first with the first layer, the second with the others."""

from collections.abc import Iterator

import pytest

from e2e.conftest import Serving
from e2e.nodes import alone, ask, errors_of_decode, handed_over, served
from e2e.transfer import transfer

pytestmark = pytest.mark.timeout(1200)

STAGED = "staged"


@pytest.fixture(scope="module")
def staged(serving: Serving) -> Iterator[Serving]:
    """One of the four layers on the first node, three on the second."""
    parallelism = {"pipeline": 2, "nodes": 2, "layerPartition": [1, 3]}
    # On CPU, vLLM 0.32 makes the buffers between stages only when it warms up, and eager it does not.
    with served(serving, STAGED, parallelism, enforceEager=False, args={"compilation-config": {"mode": 1}}) as it:
        yield it


def test_both_stages_hand_over_their_layers(staged: Serving) -> None:
    """Nobody but the operator tells D to wait for all stages, and with the first layer alone it would answer, too."""
    before = transfer(staged.kubectl, STAGED)
    for words in (7, 20, 33):
        prompt = f"Who computes the first layer, and who the {words} others? " * words
        answer, moved = ask(staged, STAGED, prompt)
        assert answer.text == alone(staged, prompt)
        assert handed_over(moved, prompt), (moved, errors_of_decode(staged, STAGED))
    # P, which is who counts them when it pushes, may do so only with its next request.
    assert (transfer(staged.kubectl, STAGED) - before).transfers >= 2 * 2, "each stage pushes"
