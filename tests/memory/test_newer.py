"""Models with layers of several kinds: published sizes, what is kept of a request, and what vLLM logged."""

import time
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.memory import Inputs, TensorHeader, UnusableSpecError, checkpoint_of, kv, model_facts
from pdinference.memory import plan_role as plan_of
from pdinference.memory.model.config import UnusableConfigError
from pdinference.memory.moved import moved
from pdinference.memory.split import split_problems
from tests.memory import newer_configs as configs
from tests.memory.configs import LLAMA_8B, Config
from tests.memory.plans import known, plan, spec
from tests.memory.sizes import breakdown, parameters

GIB = 2**30


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (configs.GPT_OSS_20B, 20_914_757_184),
        (configs.GPT_OSS_120B, 116_829_156_672),
        (configs.QWEN3_VL_8B, 8_767_123_696),
        (configs.QWEN2_5_VL_7B, 8_292_166_656),
        (configs.GEMMA3_27B, 27_432_406_640),
        (configs.MISTRAL_SMALL_3_1, 24_011_361_280),
        (configs.LLAMA_4_SCOUT, 108_641_793_536),
        (configs.GRANITE_4_TINY, 6_939_037_248),
        (configs.NEMOTRON_3_NANO, 31_577_937_344),
    ],
)
def test_published_parameter_counts(config: Config, count: int) -> None:
    facts = model_facts(config)
    assert facts.architecture_known
    assert parameters(facts) == pytest.approx(count, rel=1e-6)


def test_a_published_index_has_the_bytes_that_are_counted() -> None:
    # metadata.total_size of model.safetensors.index.json of tencent/Hy3, with the layer for multi-token prediction.
    whole = model_facts(configs.HY3 | {"num_hidden_layers": 81})
    prediction = 2 * 4096 * 4096 + 3 * 4096  # eh_proj, enorm, hnorm, final_layernorm
    assert (
        2 * (parameters(whole) + prediction) + 2 * 80 * 192 == 597_572_342_272
    )  # biases of the routers are in float32


@pytest.mark.parametrize(
    ("config", "full", "windowed", "state"),
    [
        (configs.GPT_OSS_20B, 12, 12, 0),
        (configs.QWEN3_NEXT_80B, 12, 0, 36),
        (configs.QWEN3_6_27B, 16, 0, 48),
        (configs.GEMMA3_27B, 10, 52, 0),
        (configs.LLAMA_4_SCOUT, 12, 36, 0),
        (configs.GRANITE_4_TINY, 4, 0, 36),
        (configs.NEMOTRON_3_NANO, 6, 0, 23),
        (configs.DEEPSEEK_V3_2, 61, 0, 0),
        (configs.LAGUNA_XS, 10, 30, 0),
        (configs.MIMO_V2_FLASH, 9, 39, 0),
        (LLAMA_8B, 32, 0, 0),
    ],
)
def test_layers_by_kind(config: Config, full: int, windowed: int, state: int) -> None:
    facts = model_facts(config)
    assert (facts.full_layers, facts.windowed_layers, facts.state_layers) == (full, windowed, state)
    assert facts.recurrent == bool(state)


@pytest.mark.parametrize(
    ("config", "token", "state"),
    [
        (configs.GPT_OSS_20B, 24 * 2 * 8 * 64 * 2, None),
        (configs.QWEN3_NEXT_80B, 12 * 2 * 2 * 256 * 2, 36 * 2 * (3 * 8192 + 32 * 128 * 128)),
        (configs.QWEN3_6_27B, 16 * 2 * 4 * 256 * 2, 48 * (2 * 3 * 10240 + 4 * 48 * 128 * 128)),
        (configs.GRANITE_4_TINY, 4 * 2 * 4 * 128 * 2, 36 * 2 * (3 * 3328 + 48 * 64 * 128)),
        (configs.NEMOTRON_3_NANO, 6 * 2 * 2 * 128 * 2, 23 * (2 * 3 * 6144 + 4 * 64 * 64 * 128)),
        (configs.MIMO_V2_FLASH, (9 * 4 + 39 * 8) * (192 + 128) * 2, None),
        (configs.DEEPSEEK_V3_2, 61 * ((512 + 64) * 2 + 128 + 4), None),
    ],
)
def test_bytes_of_a_token_and_of_a_request(config: Config, token: int, state: int | None) -> None:
    made = plan(config)
    assert made.stage.kv_bytes_per_token.value == token
    assert (made.stage.state_bytes.value if made.stage.state_bytes else None) == state
    assert ("stateBytesPerRequest" in made.as_json()) == (state is not None)
    assert ("keep a state" in made.stage.kv_bytes_per_token.note) == (state is not None)


def test_two_ranks_share_a_state() -> None:
    one, two = (plan(configs.QWEN3_NEXT_80B, parallelism={"tensor": ranks}).stage for ranks in (1, 2))
    assert one.state_bytes is not None
    assert two.state_bytes is not None
    assert known(two.state_bytes.value) == known(one.state_bytes.value) / 2


def test_a_block_of_attention_is_as_large_as_a_state() -> None:
    # vLLM logged "Setting attention block size to 784 tokens" for Qwen3.6-27B (LMCache's pull request 5079).
    made = plan(configs.QWEN3_6_27B, engine={"kvCache": {"blockSize": 16}})
    assert kv.block_size(made.facts, made.settings) == 784
    assert "784" in made.tokens.note


@pytest.mark.parametrize(("caching", "states"), [(True, 2), (False, 1)])
def test_prefix_caching_keeps_the_state_before_as_well(caching: bool, states: int) -> None:
    made = plan(configs.QWEN3_NEXT_80B, engine={"enablePrefixCaching": caching}, parallelism={"tensor": 4})
    groups = kv.groups_of(made.facts, made.settings)
    assert {group.cache.states for group in groups} == {0, states}
    block = kv.block_size(made.facts, made.settings)
    assert kv.blocks_per_request(groups, made.settings, 10 * block) == 10 + 3 * states
    assert known(made.concurrency.value) > 0


def test_gpt_oss_takes_what_vllm_logged_on_an_h100() -> None:
    # vLLM's issue 33155: "Model loading took 64.38 GiB", by Triton; files of 60.8 GiB.
    made = plan(configs.GPT_OSS_120B, accelerator={"products": ["NVIDIA-H100-80GB-HBM3"]})
    assert known(made.stage.weights.value) / GIB == pytest.approx(64.38, rel=0.002)


@pytest.mark.parametrize(
    ("product", "outputs", "inputs"),
    [
        ("NVIDIA-H200", (5888, 3072), (2944, 2944)),
        ("NVIDIA-B200", (5888, 3072), (3072, 2944)),
        ("NVIDIA-A100-SXM4-80GB", (5888, 3072), (3072, 2944)),
        ("AMD-Instinct-MI300X", (6144, 3072), (3072, 3072)),
    ],
)
def test_experts_in_mxfp4_are_padded(product: str, outputs: tuple[int, int], inputs: tuple[int, int]) -> None:
    made = plan(configs.GPT_OSS_20B, accelerator={"products": [product]})
    sizes = [a * b // 2 + a * b // 32 for a, b in zip(outputs, inputs, strict=True)]
    beside = 32 * (2880 + 1) * 2 + 32 * (5760 + 2880) * 2  # router and biases
    assert breakdown(made.facts, made.settings, 0)["experts"] == 24 * (32 * sum(sizes) + beside)


def test_files_do_not_take_the_padding_away() -> None:
    facts = model_facts(configs.GPT_OSS_20B)
    at_b200: Any = {"accelerator": {"products": ["NVIDIA-B200"]}}
    by_shape = plan_of(Inputs(spec(**at_b200), facts), Role.DECODE)
    experts = 24 * 32 * 3 * 2880 * 2880
    rest = parameters(facts) - experts
    headers = {
        "a": TensorHeader("U8", experts * 17 // 32, experts * 17 // 32),
        "b": TensorHeader("BF16", rest, 2 * rest),
    }
    by_files = plan_of(Inputs(spec(**at_b200), facts, checkpoint_of(headers, facts)), Role.DECODE)
    assert known(by_files.stage.weights.value) == pytest.approx(known(by_shape.stage.weights.value), rel=1e-4)


def test_layers_that_predict_more_tokens_are_not_loaded() -> None:
    names = ("mtp.layers.0.mlp.gate", "mtp.fc.weight", "model.layers.48.mlp.gate", "model.layers.47.mlp.gate")
    headers = {name: TensorHeader("BF16", 10, 20) for name in names}
    assert checkpoint_of(headers, model_facts(configs.QWEN3_NEXT_80B)).elements == 10


def test_gemma_4_keeps_longer_blocks_where_heads_are_smaller() -> None:
    config: Config = {
        "model_type": "gemma4_text", "num_hidden_layers": 12, "hidden_size": 256, "intermediate_size": 512,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "global_head_dim": 128, "vocab_size": 512,
        "sliding_window": 128, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 4,
    }  # fmt: skip
    made = plan(config, engine={"kvCache": {"blockSize": 16}})
    # Layer 11 attends to everything, and uses the KV cache of layer 5.
    assert made.stage.kv_bytes_per_token.value == 2 * 2 * 2 * (7 * 64 + 128)
    groups = kv.groups_of(made.facts, made.settings)
    assert {(group.cache.window, group.cache.block) for group in groups} == {(128, 32), (None, 16)}
    assert sorted(len(group.layers) for group in groups) == [1] * 8


@pytest.mark.parametrize(
    "members",
    [
        {"layer_group_size": 8},
        {"interleaved_sliding_window": [2048, None]},
        {"block_configs": [{"attention": {"n_heads_in_group": 8}}]},
        {"loop_num": 2},
        {"v_head_dim": 64},
        {"hybrid_layer_pattern": [0, 1]},
    ],
    ids=lambda members: next(iter(members)),
)
def test_a_cache_of_another_kind_is_unknown(members: Config) -> None:
    made = plan(LLAMA_8B | {"model_type": "other"} | members)
    assert made.stage.kv_bytes_per_token.value is None
    assert made.tokens.value is None
    assert "Start vLLM once" in made.stage.kv_bytes_per_token.note


@pytest.mark.parametrize(
    ("members", "is_known"),
    [
        ({"num_experts_per_token": 8}, True),  # Kimi Linear
        ({"moe_topk": 8}, True),  # Hunyuan
        ({"moe_topk": [8] * 32}, False),
        ({"experts_a_token": 8}, True),
    ],
    ids=str,
)
def test_an_unknown_type_with_other_names_for_its_experts_is_planned(members: Config, is_known: bool) -> None:
    made = plan(LLAMA_8B | {"model_type": "other", "num_experts": 896} | members)
    assert made.stage.weights.value is None
    assert made.stage.kv_bytes_per_token.known == is_known


@pytest.mark.parametrize(
    "members", [{"swa_v_head_dim": 192}, {"swa_head_dim": 128}, {"hybrid_layer_pattern": None}], ids=str
)
def test_windows_with_values_of_another_size_are_unknown(members: Config) -> None:
    made = plan(configs.MIMO_V2_FLASH | members)
    assert made.stage.weights.value is None
    assert made.stage.kv_bytes_per_token.value is None


@pytest.mark.parametrize(("ranks", "fits"), [(8, True), (16, True), (32, False)])
def test_ranks_divide_the_heads_of_each_layer(ranks: int, fits: bool) -> None:
    problems = list(split_problems(spec(parallelism={"tensor": ranks}), Role.DECODE, model_facts(configs.LAGUNA_XS)))
    assert bool(problems) is not fits
    assert all("48 or 64 attention heads" in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("config", "members"),
    [
        (configs.LAGUNA_XS, {"num_attention_heads_per_layer": [48, 64, 64]}),
        (configs.MIMO_V2_FLASH, {"hybrid_layer_pattern": [0, 1, 1]}),
    ],
)
def test_a_list_for_fewer_layers_is_an_error(config: Config, members: Config) -> None:
    with pytest.raises(UnusableConfigError, match="3 entries for 4"):
        model_facts(config | members)


def test_sparse_attention_in_fp8_is_unknown() -> None:
    made = plan(configs.DEEPSEEK_V3_2, engine={"kvCache": {"dtype": "fp8"}}, parallelism={"tensor": 8})
    assert made.stage.kv_bytes_per_token.value is None
    assert "sparse attention" in made.stage.kv_bytes_per_token.note
    assert made.tokens.value is None


@pytest.mark.parametrize(("product", "is_known"), [("NVIDIA-H200", True), ("NVIDIA-B200", False)])
def test_glm_5_has_an_fp8_cache_on_blackwell(product: str, is_known: bool) -> None:
    config = configs.DEEPSEEK_V3_2 | {"model_type": "glm_moe_dsa"}
    made = plan(config, accelerator={"products": [product]}, parallelism={"tensor": 8})
    assert made.stage.kv_bytes_per_token.known == is_known


def test_what_moves_of_a_model_with_states_depends_on_the_length() -> None:
    inputs = Inputs(spec(), model_facts(configs.QWEN3_NEXT_80B))
    as_it_is, _ = moved(inputs, plan_of(inputs, Role.DECODE))
    assert as_it_is.token_bytes.value is None
    assert "state" in as_it_is.token_bytes.note


def test_a_tier_of_a_model_with_states_has_no_number_of_tokens() -> None:
    made = plan(configs.QWEN3_NEXT_80B, kvTiers={"cpu": {"size": "64Gi"}})
    assert made.tiers["cpu"].value is None


@pytest.mark.parametrize(
    ("config", "ranks"),
    [
        (configs.GRANITE_4_TINY, 8),  # 12 heads
        (configs.NEMOTRON_3_NANO, 16),  # 8 groups
        (configs.QWEN3_6_27B, 6),  # 16 heads of keys
    ],
)
def test_ranks_that_do_not_divide_a_state_are_refused(config: Config, ranks: int) -> None:
    with pytest.raises(UnusableSpecError, match="does not split"):
        plan(config, parallelism={"tensor": ranks})


def test_modules_of_a_model_with_a_tower_are_left_out_by_their_names() -> None:
    quantised = {"quant_method": "fp8", "modules_to_not_convert": ["model.language_model.layers.3.mlp.down_proj"]}
    all_of_it = plan(configs.QWEN3_VL_8B | {"quantization_config": {"quant_method": "fp8"}})
    less = plan(configs.QWEN3_VL_8B | {"quantization_config": quantised})
    more = breakdown(less.facts, less.settings, 0)["mlp"] - breakdown(all_of_it.facts, all_of_it.settings, 0)["mlp"]
    assert more == 4096 * 12288 - 4


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"layer_types": ["linear_attention"] * 3}, "3 entries for 48"),
        ({"linear_num_value_heads": 0}, "linear_num_value_heads"),
    ],
)
def test_a_state_without_its_sizes_is_an_error(members: Config, error: str) -> None:
    with pytest.raises(UnusableConfigError, match=error):
        model_facts(configs.QWEN3_NEXT_80B | members)


@pytest.mark.parametrize(
    "members", [{"linear_key_head_dim": "128"}, {"full_attention_interval": [4]}, {"attn_output_gate": 1}], ids=str
)
def test_members_that_do_not_fit_make_the_plan_unknown(members: Config) -> None:
    made = plan(configs.QWEN3_NEXT_80B | members)
    assert len(made.facts.unfit) == 1
    assert made.tokens.value is None
    assert made.stage.state_bytes is None


@pytest.mark.parametrize("pattern", ["-" * 52, "M" * 52, "E" * 52])
def test_a_hybrid_without_attention_is_unknown(pattern: str) -> None:
    made = plan(configs.NEMOTRON_3_NANO | {"hybrid_override_pattern": pattern})
    assert made.stage.weights.value is None
    assert made.tokens.value is None


def test_a_stage_that_keeps_nothing_has_unknown_blocks() -> None:
    config = configs.NEMOTRON_3_NANO | {"hybrid_override_pattern": "M*E" + "E" * 49}
    inputs = Inputs(spec(parameter={"accelerator": {"products": ["NVIDIA-H200"]}, "parallelism": {"pipeline": 2}}),
                    model_facts(config))  # fmt: skip
    made = plan_of(inputs, Role.PARAMETER)
    assert made.stages[1].blocks.value is None
    assert made.tokens.value is None


def test_many_layers_and_modules_are_planned_in_time() -> None:
    skipped = [f"model.layers.{index}.linear_attn.in_proj_qkvz" for index in range(0, 512, 2)]
    config = configs.QWEN3_NEXT_80B | {
        "num_hidden_layers": 512, "num_experts": 16,
        "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": skipped},
    }  # fmt: skip
    begin = time.process_time()
    assert plan(config, parallelism={"tensor": 8}).stage.weights.value is not None
    assert time.process_time() - begin < 20


def test_a_model_whose_layers_all_share_the_cache_of_another_is_refused() -> None:
    with pytest.raises(UnusableConfigError, match="no layer has a KV cache"):
        model_facts({**LLAMA_8B, "num_kv_shared_layers": LLAMA_8B["num_hidden_layers"]})
