"""The work of a step, counted from a model's shape."""

from dataclasses import replace

import pytest

from pdinference.memory import model_facts
from pdinference.performance.work import NotCountedError, Work, work_of
from tests.memory import configs, newer_configs
from tests.memory.configs import Config
from tests.memory.plans import plan

_GEMMA_4: Config = {
    "model_type": "gemma4_text", "num_hidden_layers": 12, "hidden_size": 256, "intermediate_size": 512,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "global_head_dim": 128, "vocab_size": 512,
    "sliding_window": 128, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
}  # fmt: skip


def _work(config: Config) -> Work:
    made = plan(config)
    return work_of(made.facts, made.settings)


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (configs.LLAMA_8B, 8.0),
        (configs.QWEN3_30B_A3B, 3.3),
        (configs.DEEPSEEK_V3, 37),
        (newer_configs.GPT_OSS_20B, 3.6),
        (newer_configs.GPT_OSS_120B, 5.1),
        (newer_configs.LLAMA_4_SCOUT, 17),
        (newer_configs.LAGUNA_XS, 3),
        (newer_configs.HY3, 21),
        (newer_configs.MIMO_V2_FLASH, 15),
        (newer_configs.NEMOTRON_3_NANO, 3.2),
    ],
)
def test_a_token_takes_two_operations_for_each_active_parameter(config: Config, billions: float) -> None:
    # What their authors say, in vllm-project/recipes; embeddings, which some of them count, are no operations.
    work = _work(config)
    active = (work.flops + work.expert_flops + work.head_flops) / 2e9
    assert active == pytest.approx(billions, rel=0.12)


def test_layers_with_more_heads_take_more_operations_for_a_pair_of_tokens() -> None:
    work = _work(newer_configs.LAGUNA_XS)
    assert (work.pair_flops, work.window_pair_flops) == (10 * 4 * 48 * 128, 30 * 4 * 64 * 128)


@pytest.mark.parametrize(
    ("config", "reductions"),
    [(configs.LLAMA_8B, 64), (newer_configs.QWEN3_NEXT_80B, 96), (newer_configs.NEMOTRON_3_NANO, 52)],
)
def test_ranks_add_up_after_each_part_of_a_layer(config: Config, reductions: int) -> None:
    two = plan(config, parallelism={"tensor": 2})
    work = work_of(two.facts, two.settings)
    assert (work.reductions, work.reduced_bytes) == (reductions, reductions * two.facts.hidden * 2)
    assert _work(config).reductions == 0


def test_experts_in_a_latent_space_take_fewer_operations() -> None:
    whole, latent = (
        _work(newer_configs.NEMOTRON_3_NANO),
        _work(newer_configs.NEMOTRON_3_NANO | {"moe_latent_size": 1344}),
    )
    assert latent.expert_flops == whole.expert_flops / 2


def test_layers_that_share_a_kv_cache_read_it() -> None:
    shared, own = _work(_GEMMA_4 | {"num_kv_shared_layers": 4}), _work(_GEMMA_4)
    assert (shared.kv_bytes, shared.window_kv_bytes) == (own.kv_bytes, own.window_kv_bytes)


def test_work_of_an_unknown_model_is_not_counted() -> None:
    facts = model_facts(configs.LLAMA_8B | {"model_type": "other"})
    with pytest.raises(NotCountedError, match="other"):
        work_of(facts, replace(plan(configs.LLAMA_8B).settings))
