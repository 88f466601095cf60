"""Damage of any single block of KV cache is seen in the answers of a model that is not indifferent to its prompt."""

import copy
import math
import random
from typing import Any

import pytest

from pdinference.router import canary
from pdinference.router.canary import distance
from pdinference.router.canary_prompts import prompts

pytestmark = pytest.mark.vllm

BLOCK = 128
CANARIES = 3


def model() -> Any:
    """The tests' model (images/vllm-cpu/tiny_model.py), with larger weights: its own answers are nearly uniform."""
    import torch  # noqa: PLC0415 - not always installed
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    torch.manual_seed(20261120)
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.08,
    )
    return LlamaForCausalLM(config).eval()


async def of_bytes(text: str, _opens: bool) -> list[int]:
    return list(text.encode())


def prefill(served: Any, prompt: list[int]) -> Any:
    """KV cache of a prompt, but for its last token, which D computes."""
    import torch  # noqa: PLC0415

    with torch.no_grad():
        return served(torch.tensor([prompt[:-1]]), use_cache=True).past_key_values


def answer(served: Any, prompt: list[int], cache: Any) -> dict[str, float]:
    """Probabilities of the most likely first tokens."""
    import torch  # noqa: PLC0415

    with torch.no_grad():
        logits = served(torch.tensor([prompt[-1:]]), past_key_values=copy.deepcopy(cache)).logits[0, -1]
    weights, tokens = torch.topk(torch.softmax(logits, -1), canary._MOST_LIKELY)
    return dict(zip(map(str, tokens.tolist()), (weights / weights.sum()).tolist(), strict=True))


def damaged(cache: Any, other: Any, block: int) -> Any:
    """KV cache with a block of another one; of zeros without another one."""
    found = copy.deepcopy(cache)
    place = slice(block * BLOCK, (block + 1) * BLOCK)
    for number, layer in enumerate(found.layers):
        layer.keys[:, :, place] = 0 if other is None else other.layers[number].keys[:, :, place]
        layer.values[:, :, place] = 0 if other is None else other.layers[number].values[:, :, place]
    return found


@pytest.mark.parametrize("zeros", [True, False])
async def test_damage_of_each_single_block_is_found(zeros: bool) -> None:
    random.seed(1)
    served = model()
    found: dict[int, int] = {}
    for _ in range(CANARIES):
        asked = await prompts(BLOCK, of_bytes)
        caches = [prefill(served, prompt) for prompt in asked]
        for block in range(math.ceil(len(asked[0]) / BLOCK)):
            apart = [
                distance(
                    answer(served, prompt, cache),
                    answer(served, prompt, damaged(cache, None if zeros else other, block)),
                )
                for prompt, cache, other in zip(asked, caches, reversed(caches), strict=True)
            ]
            found[block] = found.get(block, 0) + (max(apart) > canary._LIMIT)
    assert len(found) == 5
    assert min(found.values()) >= CANARIES - 1, found
