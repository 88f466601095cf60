"""The KV cache of each kind of attention."""

from dataclasses import replace

import pytest

from pdinference.memory import kv, model_facts
from tests.memory import configs
from tests.memory.configs import Config
from tests.memory.plans import known, plan


@pytest.mark.parametrize(
    ("config", "tensor", "size"),
    [
        (configs.LLAMA_8B, 1, 131072),
        (configs.LLAMA_70B, 1, 327680),
        (configs.LLAMA_70B, 4, 81920),
        (configs.LLAMA_70B, 16, 40960),  # 8 KV heads on 16 ranks: one each
        (configs.LLAMA_1B, 1, 32768),
        (configs.QWEN_7B, 1, 57344),
        (configs.QWEN_14B, 1, 196608),
        (configs.MISTRAL_7B, 1, 131072),
        (configs.MIXTRAL, 2, 65536),
        (configs.DEEPSEEK_V2_LITE, 1, 31104),
        (configs.DEEPSEEK_V2_LITE, 4, 31104),  # the latent vector is whole on every rank
        (configs.DEEPSEEK_V3, 8, 70272),
        (configs.GEMMA2_9B, 1, 344064),
        (configs.GEMMA3_1B, 1, 26624),
    ],
)
def test_bytes_of_a_token(config: Config, tensor: int, size: int) -> None:
    made = plan(config, parallelism={"tensor": tensor}) if tensor > 1 else plan(config)
    assert made.stage.kv_bytes_per_token.value == size


def test_fp8_halves_a_token_and_doubles_the_capacity() -> None:
    plain, small = plan(configs.LLAMA_8B), plan(configs.LLAMA_8B, engine={"kvCache": {"dtype": "fp8"}})
    assert small.stage.kv_bytes_per_token.value == 65536
    assert known(small.tokens.value) == pytest.approx(2 * known(plain.tokens.value), rel=1e-4)


def test_a_checkpoint_may_ask_for_an_fp8_cache() -> None:
    quantised = {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert plan(configs.LLAMA_8B | {"quantization_config": quantised}).stage.kv_bytes_per_token.value == 65536


@pytest.mark.parametrize(
    ("config", "windows", "sizes"),
    [
        (configs.LLAMA_8B, {None}, [32]),
        (configs.MISTRAL_7B, {4096}, [32]),
        (configs.QWEN_7B, {None}, [28]),  # use_sliding_window is off
        (configs.GEMMA2_9B, {None, 4096}, [21, 21]),
        (configs.GEMMA3_1B, {None, 512}, [4, 4, 4, 4, 4, 3, 3]),  # 22 sliding in six groups, 4 full
    ],
)
def test_groups_of_layers(config: Config, windows: set[int | None], sizes: list[int]) -> None:
    made = plan(config)
    groups = kv.groups_of(made.facts, made.settings)
    assert {group.cache.window for group in groups} == windows
    assert sorted((len(group.layers) for group in groups), reverse=True) == sorted(sizes, reverse=True)
    assert sorted(layer for group in groups for layer in group.layers) == list(range(config["num_hidden_layers"]))


def test_nearly_equal_kinds_share_the_larger_size() -> None:
    # 12 sliding and 13 full layers make two groups, not 1 + 2 (gpt-oss with a draft layer in vLLM's own comment).
    kinds = ["sliding_attention", "full_attention"] * 12 + ["full_attention"]
    made = plan(configs.GEMMA3_1B | {"num_hidden_layers": 25, "layer_types": kinds})
    assert [len(group.layers) for group in kv.groups_of(made.facts, made.settings)] == [12, 13]


def test_layer_types_win_over_patterns() -> None:
    types = ["full_attention", "sliding_attention", "sliding_attention"]
    config = configs.GEMMA3_1B | {"num_hidden_layers": 3, "layer_types": types}
    assert model_facts(config).windows == (None, 512, 512)


def test_a_window_holds_the_steps_under_way_and_a_block_more() -> None:
    made = plan(configs.MISTRAL_7B)
    settings = replace(made.settings, max_num_batched_tokens=1024, block_size=16)
    groups = kv.groups_of(made.facts, settings)
    assert kv.blocks_per_request(groups, settings, 100_000) == (4095 + 2 * 1024 + 15) // 16 + 1
    assert kv.blocks_per_request(groups, settings, 100) == 7 + 1


def test_capacity_counts_whole_blocks() -> None:
    made = plan(configs.LLAMA_8B)
    settings = replace(made.settings, block_size=16)
    groups = kv.groups_of(made.facts, settings)
    held = kv.capacity(groups, settings, 1000, 100)  # a request of 100 tokens holds 7 blocks
    assert held.concurrency == pytest.approx(1000 / 7)
    assert held.tokens == int(1000 / 7 * 100)
    assert kv.largest_length(groups, settings, 10, 10_000) == 160
    assert kv.largest_length(groups, settings, 10, 100) == 100
    assert kv.largest_length(groups, settings, 0, 100) == 0


@pytest.mark.parametrize(
    "sign", [{"mamba_d_state": 16}, {"index_head_dim": 128}, {"layer_types": ["linear_attention"]}]
)
def test_a_model_that_keeps_another_state_has_no_capacity(sign: Config) -> None:
    made = plan(configs.LLAMA_8B | {"model_type": "other", **sign})
    assert made.stage.kv_bytes_per_token.value is None
    assert made.tokens.value is None
