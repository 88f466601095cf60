"""A P instance of two pods, one on each node: the first with the first layer, the second with the others."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.conftest import Serving
from e2e.nodes import alone, ask, ask_until_connected, errors_of_decode, handed_over, served
from e2e.requests import complete
from e2e.tiers import tiers
from e2e.transfer import transfer
from pdinference.api.names import Role

pytestmark = pytest.mark.timeout(2400)

STAGED = "staged"


@pytest.fixture(scope="module")
def staged(serving: Serving) -> Iterator[Serving]:
    """One of the four layers on the first node, three on the second; D has few blocks, and memory behind them."""
    parallelism = {"pipeline": 2, "nodes": 2, "layerPartition": [1, 3]}
    # On CPU, vLLM 0.32 makes the buffers between stages only when it warms up, and eager it does not.
    compiled = {"compilation-config": {"mode": 1}}
    decode = {"kvTiers": {"cpu": {"size": "32Mi"}}, "args": {"num-gpu-blocks-override": 20}}
    with served(serving, STAGED, parallelism, decode=decode, enforceEager=False, args=compiled) as it:
        yield it


def test_both_stages_hand_over_their_layers(staged: Serving) -> None:
    """Nobody but the operator tells D to wait for all stages, and with the first layer alone it would answer, too."""
    first, *others = [f"Who computes the first layer, and who the {words} others? " * words for words in (7, 20, 33)]
    before = transfer(staged.kubectl, STAGED)
    asked = [ask_until_connected(staged, STAGED, (first, f"Again: {first}", f"Once more: {first}"))]
    asked += [(prompt, *ask(staged, STAGED, prompt)) for prompt in others]
    for prompt, answer, moved in asked:
        assert answer.text == alone(staged, prompt)
        assert handed_over(moved, prompt), (moved, errors_of_decode(staged, STAGED))
    # P, which is who counts them when it pushes, may do so only with its next request.
    assert (transfer(staged.kubectl, STAGED) - before).transfers >= 2 * 2, "each stage pushes"


def test_requests_with_one_id_get_the_kv_cache_of_their_own_prompts(staged: Serving) -> None:
    """P pushes by the id of a request, and a client may choose it."""
    prompts = [f"{uuid.uuid4().hex} is the prompt of client {number}. ".ljust(300, "x") for number in range(6)]
    with staged.kubectl.port_forward(f"service/{STAGED}", 80) as url, ThreadPoolExecutor(len(prompts)) as clients:

        def asked(prompt: str) -> str:
            return complete(url, STAGED, prompt, 16, ignore_eos=True, request_id="same").text

        answers = list(clients.map(asked, prompts))
    assert answers == [alone(staged, prompt) for prompt in prompts]


def test_what_d_generated_comes_back_from_its_tier_behind_stages_too(staged: Serving) -> None:
    prompts = [f"{uuid.uuid4().hex} tells a long story. ".ljust(300, "x") for _ in range(6)]
    before, moved = tiers(staged.kubectl, STAGED, Role.DECODE), transfer(staged.kubectl, STAGED)
    with staged.kubectl.port_forward(f"service/{STAGED}", 80) as url, ThreadPoolExecutor(len(prompts)) as clients:
        answers = list(clients.map(lambda prompt: complete(url, STAGED, prompt, 400, ignore_eos=True).text, prompts))
    after = tiers(staged.kubectl, STAGED, Role.DECODE) - before
    assert answers == [alone(staged, prompt, 400) for prompt in prompts]
    assert after.preemptions > 0, "six requests need more blocks than there are"
    assert after.loaded > 0, "what they had generated came back from memory"
    assert (transfer(staged.kubectl, STAGED) - moved).failed == 0
