"""Damage of any single block of KV cache is seen in the answers of a model that is not indifferent to its prompt."""

import copy
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from pdinference.router import canary, canary_outcome
from pdinference.router.canary_outcome import distance
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


def damaged(cache: Any, other: Any, place: slice) -> Any:
    """KV cache with a block of another one; of zeros without another one."""
    found = copy.deepcopy(cache)
    for number, layer in enumerate(found.layers):
        layer.keys[:, :, place] = 0 if other is None else other.layers[number].keys[:, :, place]
        layer.values[:, :, place] = 0 if other is None else other.layers[number].values[:, :, place]
    return found


def places(prompt: list[int]) -> dict[str, slice]:
    """The blocks of a prompt: the full ones by number, and the last one."""
    full = len(prompt) // BLOCK
    found = {f"block {block}": slice(block * BLOCK, (block + 1) * BLOCK) for block in range(full)}
    return {**found, "last": slice(full * BLOCK, len(prompt) - 1)}


@pytest.mark.parametrize("zeros", [True, False])
async def test_damage_of_each_single_block_is_found(zeros: bool) -> None:
    random.seed(1)
    served = model()
    found: Counter[str] = Counter()
    for _ in range(CANARIES):
        asked, others = await prompts(BLOCK, of_bytes), await prompts(BLOCK, of_bytes)
        apart: defaultdict[str, float] = defaultdict(float)
        for prompt, other in zip(asked, others, strict=True):
            cache, wrong = prefill(served, prompt), None if zeros else prefill(served, other)
            right = answer(served, prompt, cache)
            for name, place in places(prompt).items():
                seen = distance(right, answer(served, prompt, damaged(cache, wrong, place)))
                apart[name] = max(apart[name], seen)
        found.update(name for name, seen in apart.items() if seen > canary_outcome._LIMIT)
    assert set(found) == {"block 0", "block 1", "block 2", "last"}
    assert min(found.values()) >= CANARIES - 1, found
