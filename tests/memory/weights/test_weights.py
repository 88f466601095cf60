"""Weights from the architecture and from headers, sharded and quantized."""

from dataclasses import replace

import pytest

from pdinference.api.names import Role
from pdinference.memory import Inputs, TensorHeader, checkpoint_of, model_facts, plan_role
from pdinference.memory.settings import even_partition
from pdinference.memory.weights.linear import Tensor
from pdinference.memory.weights.on_device import allocator_rounding
from pdinference.memory.weights.rotary import rotary_bytes
from tests.memory import configs
from tests.memory.configs import Config
from tests.memory.plans import known, plan, spec, stages_plan
from tests.memory.sizes import breakdown, parameters

GIB = 2**30
MIB = 2**20


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (configs.LLAMA_8B, 8_030_261_248),
        (configs.LLAMA_70B, 70_553_706_496),
        (configs.LLAMA_1B, 1_235_814_400),
        (configs.QWEN_7B, 7_615_616_512),
        (configs.QWEN_14B, 14_770_033_664),
        (configs.MISTRAL_7B, 7_241_732_096),
        (configs.MIXTRAL, 46_702_792_704),
        (configs.QWEN3_30B_A3B, 30_532_122_624),
        (configs.DEEPSEEK_V2_LITE, 15_706_484_224),
        (configs.DEEPSEEK_V3, 671_026_419_200),
        (configs.GEMMA2_9B, 9_241_705_984),
        (configs.GEMMA3_1B, 999_885_952),
    ],
)
def test_published_parameter_counts(config: Config, count: int) -> None:
    assert parameters(model_facts(config)) == pytest.approx(count, rel=1e-6)


def test_tensor_parallel_ranks_share_what_can_be_shared() -> None:
    one, two = plan(configs.LLAMA_70B), plan(configs.LLAMA_70B, parallelism={"tensor": 2})
    norms = breakdown(one.facts, one.settings, 0)["norm"] + rotary_bytes(one.facts, one.settings)
    halved = (known(one.stage.weights.value) - norms) / 2 + norms
    assert known(two.stage.weights.value) == pytest.approx(halved, abs=8 * MIB)


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    # Qwen2.5-7B has 4 KV heads: with 7 ranks each holds one, 7 in all.
    facts = model_facts(configs.QWEN_7B)
    seven = breakdown(facts, plan(configs.QWEN_7B).settings.with_tensor(7), 0)["attention"]
    per_layer = (4 + 2) * 128 * (3584 + 1) * 2 + 3584 * 4 * 128 * 2
    assert seven == 28 * per_layer


def test_mla_down_projections_are_whole_on_every_rank() -> None:
    facts = model_facts(configs.DEEPSEEK_V2_LITE)
    settings = plan(configs.DEEPSEEK_V2_LITE).settings
    one, two = (breakdown(facts, settings.with_tensor(ranks), 0)["attention"] for ranks in (1, 2))
    whole = 27 * (512 + 64) * 2048 * 2
    assert two == (one - whole) / 2 + whole


def test_experts_are_spread_whole_or_sharded_alike() -> None:
    sharded = plan(configs.MIXTRAL, parallelism={"tensor": 4})
    spread = plan(configs.MIXTRAL, parallelism={"tensor": 4, "expert": True})
    assert known(spread.stage.weights.value) == pytest.approx(known(sharded.stage.weights.value), rel=0.001)
    over_data = plan(configs.MIXTRAL, parallelism={"tensor": 2, "data": 2, "expert": True})
    experts = breakdown(over_data.facts, over_data.settings, 0)["experts"]
    assert experts == pytest.approx(32 * (8 * 3 * 4096 * 14336 * 2 / 4 + 8 * 4096 * 2))
    assert known(over_data.stage.weights.value) > known(spread.stage.weights.value)  # attention over 2 instead of 4


def test_uneven_stages_and_the_worst_one() -> None:
    settings = replace(plan(configs.LLAMA_8B).settings, layer_partition=(24, 8))
    made = stages_plan(configs.LLAMA_8B, settings)
    assert [stage.layers for stage in made.stages] == [24, 8]
    assert made.worst == 0
    assert [stage.kv_bytes_per_token.value for stage in made.stages] == [24 * 4096, 8 * 4096]
    assert made.blocks.value == min(known(stage.blocks.value) for stage in made.stages)
    layer = breakdown(made.facts, settings, 1)
    assert layer["head"] == 128256 * 4096 * 2
    assert "embedding" not in layer


def test_a_tied_embedding_is_in_the_first_and_the_last_stage() -> None:
    settings = replace(plan(configs.LLAMA_1B).settings, layer_partition=(6, 5, 5))
    holds = ["embedding" in breakdown(model_facts(configs.LLAMA_1B), settings, stage) for stage in range(3)]
    assert holds == [True, False, True]


@pytest.mark.parametrize(
    ("layers", "stages", "partition"),
    [(32, 2, (16, 16)), (61, 2, (31, 30)), (26, 4, (6, 7, 7, 6)), (27, 4, (7, 7, 7, 6)), (3, 1, (3,))],
)
def test_even_partition_is_that_of_vllm(layers: int, stages: int, partition: tuple[int, ...]) -> None:
    assert even_partition(layers, stages) == partition


def test_awq_checkpoint() -> None:
    # The files of Qwen2.5-14B-Instruct-AWQ are 9.98 GB together.
    made = plan(configs.QWEN_14B_AWQ, model={"dtype": "half"})
    size = breakdown(made.facts, made.settings, 0).total()
    assert size == pytest.approx(9.98e9, rel=0.005)


def test_fp8_block_quantised_checkpoint() -> None:
    # DeepSeek-V3 without its multi-token prediction: 671 GB of 8-bit weights; tables and decode's copies 16-bit.
    made = plan(configs.DEEPSEEK_V3, parallelism={"tensor": 8})
    up = 61 * 16 * 256 * 512 * 2
    eighth = 671.026e9 / 8
    assert breakdown(made.facts, made.settings, 0).total() - up == pytest.approx(eighth, rel=0.02)


def test_modules_left_out_of_quantisation() -> None:
    skipped = configs.QWEN_14B_AWQ["quantization_config"] | {"modules_to_not_convert": ["down_proj", "gate"]}
    made = plan(configs.QWEN_14B_AWQ | {"quantization_config": skipped}, model={"dtype": "half"})
    all_quantised = plan(configs.QWEN_14B_AWQ, model={"dtype": "half"})
    all_of_it, less = (breakdown(each.facts, each.settings, 0).total() for each in (made, all_quantised))
    assert all_of_it - less == pytest.approx(48 * 5120 * 13824 * (2 - 0.5 - 2.5 / 128))


def test_fp8_on_load_halves_the_linear_layers() -> None:
    plain, loaded = plan(configs.LLAMA_8B), plan(configs.LLAMA_8B, model={"quantization": "fp8"})
    tables = 2 * 128256 * 4096 * 2
    linear = known(plain.stage.weights.value) - tables
    assert known(loaded.stage.weights.value) == pytest.approx(tables + linear / 2, rel=0.002)


def test_lora_slots_take_memory() -> None:
    plain = plan(configs.LLAMA_8B)
    tuned = plan(configs.LLAMA_8B, model={"lora": {"maxRank": 32, "maxActive": 2}})
    each = (3 * 4096 + 6144) + (4096 + 4096) + (2 * 4096 + 28672) + (14336 + 4096)
    more = known(tuned.stage.weights.value) - known(plain.stage.weights.value)
    assert more == 2 * 32 * (32 * each + 2 * (128256 + 4096)) * 2


def test_headers_correct_the_architecture() -> None:
    facts = model_facts(configs.LLAMA_1B)
    count = parameters(facts)
    checkpoint = {
        "model.everything": TensorHeader("BF16", count, 2 * count),
        "lm_head.weight": TensorHeader("BF16", 128256 * 2048, 2 * 128256 * 2048),  # tied: not loaded
        "model.layers.16.mtp": TensorHeader("BF16", 10**9, 2 * 10**9),  # beyond the model's layers: not loaded
    }
    by_shape = plan_role(Inputs(spec(), facts), Role.DECODE).stage.weights
    by_headers = plan_role(Inputs(spec(), facts, checkpoint_of(checkpoint, facts)), Role.DECODE).stage.weights
    assert by_headers.value == by_shape.value
    assert "headers" in by_headers.note
    fatter = checkpoint | {"model.extra": TensorHeader("F32", count, 4 * count)}
    doubled = plan_role(Inputs(spec(), facts, checkpoint_of(fatter, facts)), Role.DECODE).stage.weights
    assert known(doubled.value) == pytest.approx(2 * known(by_shape.value), rel=0.01)


def test_an_unknown_architecture_is_unknown_without_headers_and_even_with() -> None:
    strange = configs.LLAMA_8B | {"model_type": "strange"}
    made = plan(strange)
    assert made.stage.weights.value is None
    assert "--model-dir" in made.stage.weights.note
    assert made.tokens.value is None
    assert made.stage.kv_bytes_per_token.value == 131072
    headers = {"a": TensorHeader("BF16", 4 * GIB, 8 * GIB)}
    facts = model_facts(strange)
    inputs = Inputs(spec(parallelism={"tensor": 2}), facts, checkpoint_of(headers, facts))
    shared = plan_role(inputs, Role.DECODE)
    assert shared.stage.weights.value == 4 * GIB


def test_an_unknown_quantisation_is_unknown() -> None:
    made = plan(configs.LLAMA_8B | {"quantization_config": {"quant_method": "mxfp4"}})
    assert made.stage.weights.value is None
    assert "mxfp4" in made.stage.weights.note


def test_rounding_of_pytorchs_allocator() -> None:
    tensors = [Tensor("norm", (1000,)), Tensor("norm", (MIB,)), Tensor("mlp", (3 * MIB,)), Tensor("mlp", (259 * MIB,))]
    assert allocator_rounding(tensors) == (MIB - 1000) + 17 * MIB + MIB


def test_latent_attention_that_is_not_quantised_has_no_second_copy() -> None:
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    plain = plan(configs.DEEPSEEK_V3 | {"quantization_config": None})
    skipped = plan(configs.DEEPSEEK_V3 | {"quantization_config": quantised | {"modules_to_not_convert": ["self_attn"]}})
    attention = [breakdown(made.facts, made.settings, 0)["attention"] for made in (plain, skipped)]
    assert attention[0] == attention[1]
