"""Families of 2023: specific members, packed tensors, shards, and classes that vLLM has removed."""

from dataclasses import replace

import pytest

from pdinference.api.names import Role
from pdinference.memory import Inputs, TensorHeader, checkpoint_of, model_facts, plan_role
from pdinference.memory.kv import layer_token_bytes
from pdinference.memory.model.config import UnusableConfigError
from tests.memory import configs
from tests.memory.configs import Config
from tests.memory.plans import known, plan, spec
from tests.memory.sizes import breakdown, parameters

GIB = 2**30


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (configs.BAICHUAN_7B, 7_000_559_616),  # model card
        (configs.BAICHUAN_13B, 13_264_901_120),  # README of github.com/baichuan-inc/Baichuan-13B
        (configs.BAICHUAN2_7B, 7_505_973_248),  # half of total_size in its index of pytorch_model.bin
        (configs.CHATGLM3_6B, 6_243_584_000),  # vLLM's class; so are the next one's, see test_vllm_classes.py
        (configs.GLM4_9B, 9_399_951_360),
        (configs.QWEN_V1_7B, 7_721_324_544),  # its safetensors files
        (configs.YI_34B, 34_388_917_248),  # its safetensors files
        (configs.FALCON_7B, 7_217_189_760 - 65024 * 4544),  # its safetensors files, in which the tied head is once more
        (configs.BLOOM, 176_247_271_424),  # model card
    ],
)
def test_parameter_counts_of_older_families(config: Config, count: int) -> None:
    assert parameters(model_facts(config)) == count


def test_internlm_is_llama_with_four_biases() -> None:
    llama = {**configs.INTERNLM_7B, "model_type": "llama", "attention_bias": True}
    assert parameters(model_facts(configs.INTERNLM_7B)) == parameters(model_facts(llama))
    silent = parameters(model_facts({**configs.INTERNLM_7B, "bias": False}))
    assert parameters(model_facts(configs.INTERNLM_7B)) - silent == 32 * 4 * 4096


def test_baichuan_7b_in_half_precision() -> None:
    made = plan(configs.BAICHUAN_7B, model={"dtype": "float16", "maxModelLength": 4096})
    assert f"{known(made.stage.weights.value) / GIB:.2f}" == "13.04"
    assert made.stage.kv_bytes_per_token.value == 524_288


@pytest.mark.parametrize(
    ("config", "heads", "token_bytes"),
    [
        (configs.BAICHUAN_13B, 40, 40 * 2 * 40 * 128 * 2),
        (configs.CHATGLM3_6B, 2, 28 * 2 * 2 * 128 * 2),
        (configs.CHATGLM3_6B | {"multi_query_attention": False}, 32, 28 * 2 * 32 * 128 * 2),
        (configs.FALCON_7B, 1, 32 * 2 * 64 * 2),  # whatever num_kv_heads says
        (configs.FALCON_7B | {"multi_query": False}, 71, 32 * 2 * 71 * 64 * 2),
        (configs.FALCON_40B, 8, 60 * 2 * 8 * 64 * 2),
        (configs.BLOOM, 112, 70 * 2 * 112 * 128 * 2),
    ],
)
def test_kv_bytes_of_a_token(config: Config, heads: int, token_bytes: int) -> None:
    made = plan(config, model={"maxModelLength": 2048})
    assert made.facts.kv_heads == heads
    assert made.stage.kv_bytes_per_token.value == token_bytes


def test_two_kv_heads_on_four_ranks_are_replicated() -> None:
    facts = model_facts(configs.CHATGLM3_6B)
    four = plan(configs.CHATGLM3_6B).settings.with_tensor(4)
    qkv = (8 + 2) * 128
    assert breakdown(facts, four, 0)["attention"] == 28 * 2 * (qkv * 4096 + qkv + 4096 * 1024)
    assert layer_token_bytes(facts, four, 0) == 2 * 128 * 2


def test_each_stage_of_chatglm_allocates_embedding_and_head() -> None:
    facts = model_facts(configs.CHATGLM3_6B)
    halves = replace(plan(configs.CHATGLM3_6B).settings, layer_partition=(14, 14))
    table = 65024 * 4096 * 2
    for stage in (0, 1):
        held = breakdown(facts, halves, stage)
        assert (held["embedding"], held["head"], held["norm"]) == (table, table, (2 * 14 + 1) * 4096 * 2)


def test_packed_tensors_take_one_adapter() -> None:
    def slots(config: Config) -> float:
        tuned = plan(config, model={"maxModelLength": 2048, "lora": {"maxRank": 16, "maxActive": 1}})
        return known(tuned.stage.weights.value) - known(
            plan(config, model={"maxModelLength": 2048}).stage.weights.value
        )

    qkv, mlp = 4096 + 4608, 4096 + 2 * 13696
    assert slots(configs.CHATGLM3_6B) == 28 * 16 * 2 * (qkv + 2 * 4096 + mlp + 13696 + 4096)
    qkv, mlp = 4096 + 3 * 4096, 2 * 4096 + 2 * 11008
    assert slots(configs.BAICHUAN_7B) == 32 * 16 * 2 * (qkv + 2 * 4096 + mlp + 11008 + 4096)


@pytest.mark.parametrize(
    ("members", "length"),
    [
        ({"max_position_embeddings": 32768, "seq_length": 8192}, 8192),
        ({"model_max_length": 4096}, 4096),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),  # Command R
        ({"max_seq_len": 2048}, 2048),
        ({}, None),
    ],
)
def test_longest_length_as_vllm_derives_it(members: Config, length: int | None) -> None:
    silent = {key: value for key, value in configs.BAICHUAN_7B.items() if key != "max_position_embeddings"}
    assert model_facts(silent | members).max_length == length


@pytest.mark.parametrize(
    "config",
    [
        configs.CHATGLM_6B,  # the first ChatGLM, which vLLM's class is not
        configs.CHATGLM3_6B | {"quantization_bit": 4},
        configs.CHATGLM3_6B | {"rmsnorm": False},
        configs.CHATGLM3_6B | {"post_layer_norm": False},
        configs.QWEN_V1_7B | {"no_bias": False},
    ],
)
def test_other_tensors_than_those_of_the_class_are_unknown(config: Config) -> None:
    made = plan(config, model={"maxModelLength": 2048})
    assert not made.facts.architecture_known
    assert made.stage.weights.value is None


@pytest.mark.parametrize(
    "members",
    [
        {"multi_query_attention": 1},
        {"add_qkv_bias": "yes"},
        {"seq_length": 1e9},
        {"model_max_length": 10**30},
        {"quantization_bit": "4"},
        {"num_ln_in_parallel_attn": [2]},
        {"post_layer_norm": 0},
    ],
)
def test_members_that_do_not_fit_make_the_plan_unknown(members: Config) -> None:
    facts = model_facts(configs.CHATGLM3_6B | members)
    assert len(facts.unfit) == 1
    assert next(iter(members)) in facts.unfit[0]
    assert not facts.architecture_known


@pytest.mark.parametrize("size", [0, -1, "65024", None, 2**40, True])
def test_a_vocabulary_by_another_name_is_checked_alike(size: object) -> None:
    with pytest.raises(UnusableConfigError, match="vocab_size"):
        model_facts(configs.CHATGLM3_6B | {"padded_vocab_size": size})


def test_layers_beyond_the_models_own_are_not_loaded() -> None:
    names = ("transformer.encoder.layers.{}.mlp", "transformer.h.{}.mlp", "h.{}.mlp", "gpt_neox.layers.{}.mlp")
    headers = {name.format(layer): TensorHeader("F16", 10, 20) for name in names for layer in (27, 28)}
    assert checkpoint_of(headers, model_facts(configs.CHATGLM3_6B)).elements == 40


@pytest.mark.parametrize("config", [configs.BAICHUAN_7B, configs.QWEN_V1_7B, configs.INTERNLM_7B])
def test_the_plan_names_the_last_vllm_that_runs_it(config: Config) -> None:
    weights = plan_role(Inputs(spec(), model_facts(config)), Role.DECODE).stage.weights
    assert weights.value is not None
    assert weights.note.endswith("No vLLM after 0.23.0 runs this model type.")
    assert "No vLLM" not in plan(configs.CHATGLM3_6B).stage.weights.note
