"""The plan as a whole: devices, defaults, stages, what if."""

import pytest

from pdinference.api.names import Role
from pdinference.memory import (
    Inputs,
    Source,
    UnusableConfigError,
    UnusableSpecError,
    least_memory,
    model_facts,
    one_request,
    plan_role,
    stated_memory,
    what_if,
)
from pdinference.memory.gpus import gpu_memory, smallest_gpu_memory
from tests.memory import configs
from tests.memory.plans import known, plan, spec

GIB = 2**30


def test_the_smallest_product_counts_and_an_unknown_one_is_not_guessed() -> None:
    both = smallest_gpu_memory(["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB"])
    assert both.value == gpu_memory("NVIDIA-A100-SXM4-40GB").value
    mixed = smallest_gpu_memory(["NVIDIA-H200", "ACME-9000"])
    assert mixed.value is None
    assert "ACME-9000" in mixed.note
    assert smallest_gpu_memory([]).value is None
    assert gpu_memory("NVIDIA-L4-SHARED").value == gpu_memory("NVIDIA-L4").value
    assert gpu_memory("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb").value is None
    assert gpu_memory("NVIDIA-H200").source is Source.MEASURED


@pytest.mark.parametrize(
    ("product", "gib"),
    [
        ("NVIDIA-H100-80GB-HBM3", 80),
        ("NVIDIA-L40S", 48),
        ("Tesla-T4", 16),
        ("NVIDIA-GeForce-RTX-4090", 24),
        ("AMD_Instinct_MI300X_OAM", 192),
        ("NVIDIA-B200", 186),
    ],
)
def test_usable_memory_is_a_little_less_than_the_name_says(product: str, gib: int) -> None:
    assert 0.9 * gib <= known(gpu_memory(product).value) / GIB <= gib


def test_a_mig_slice_does_not_have_the_memory_of_its_product() -> None:
    piece = {"products": ["NVIDIA-H100-80GB-HBM3"], "resourceName": "nvidia.com/mig-1g.10gb"}
    made = plan(configs.LLAMA_8B, accelerator=piece)
    assert not made.memory.known
    assert "nvidia.com/mig-1g.10gb has a part of a GPU's memory" in made.memory.note
    assert plan(configs.LLAMA_8B, accelerator=piece | {"memory": "10Gi"}).memory.value == 10 * GIB


def test_unknown_memory_leaves_the_rest_known() -> None:
    elsewhere = {"nodeSelector": {"pool": "d"}}
    made = plan(configs.LLAMA_8B, accelerator={}, placement=elsewhere)
    assert made.stage.weights.known
    assert made.stage.kv_bytes_per_token.value == 131072
    assert made.tokens.value is None
    assert "accelerator.memory" in made.tokens.note
    assert made.stage.kv_cache.source is Source.UNKNOWN
    unchunked = plan(configs.LLAMA_8B, accelerator={}, placement=elsewhere, enableChunkedPrefill=False)
    assert "maxNumBatchedTokens" in unchunked.stage.activations.note
    assert "maxNumBatchedTokens" not in plan(configs.LLAMA_8B).stage.activations.note


def test_d_is_planned_for_the_products_of_p() -> None:
    assert plan(configs.LLAMA_8B, accelerator={}).memory == plan(configs.LLAMA_8B).memory


def test_stated_memory_wins_over_the_table() -> None:
    inputs = Inputs(spec(), model_facts(configs.LLAMA_8B), memory=stated_memory(80 * GIB))
    made = plan_role(inputs, Role.DECODE)
    assert made.memory.value == 80 * GIB
    assert made.stage.requested.value == pytest.approx(0.92 * 80 * GIB, abs=1)


def test_defaults_are_the_operators_then_those_of_vllm() -> None:
    large, small = plan(configs.LLAMA_8B), plan(configs.LLAMA_8B, accelerator={"products": ["NVIDIA-L4"]})
    assert (large.settings.max_num_batched_tokens, large.settings.max_num_seqs) == (2048, 1024)
    assert (small.settings.max_num_batched_tokens, small.settings.max_num_seqs) == (2048, 256)
    assert plan(configs.LLAMA_8B, enableChunkedPrefill=False).settings.max_num_batched_tokens == 8192
    assert plan(configs.LLAMA_8B, accelerator={"products": ["NVIDIA-A100-SXM4-80GB"]}).settings.max_num_seqs == 256
    spark = {"products": ["NVIDIA-GB10"], "memory": "119Gi"}
    assert plan(configs.LLAMA_8B, accelerator=spark).settings.max_num_seqs == 256
    assert large.settings.block_size == 128
    assert large.settings.utilization == 0.92


def test_a_role_wins_over_the_engine() -> None:
    made = plan(configs.LLAMA_8B, engine={"maxNumSeqs": 64, "gpuMemoryUtilization": 0.8}, maxNumSeqs=32)
    assert made.settings.max_num_seqs == 32
    assert made.settings.utilization == 0.8


def test_cpu_takes_the_kv_space_from_the_environment() -> None:
    engine = {"env": {"VLLM_CPU_KVCACHE_SPACE": "2"}}
    made = plan(configs.LLAMA_1B, engine=engine, accelerator={"type": "CPU"})
    assert made.stage.kv_cache.value == 2 * GIB
    assert made.blocks.value == 2 * GIB // (32768 * 128)
    assert made.tokens.value == 65536
    assert plan(configs.LLAMA_1B, accelerator={"type": "CPU"}).tokens.value is None


def test_cpu_with_mla() -> None:
    engine = {"env": {"VLLM_CPU_KVCACHE_SPACE": "1"}, "kvCache": {"blockSize": 32}}
    made = plan(configs.DEEPSEEK_V2_LITE, engine=engine, accelerator={"type": "CPU"})
    assert made.blocks.value == GIB // (31104 * 32)


def test_kv_cache_memory_bytes_is_taken_as_it_is() -> None:
    made = plan(configs.LLAMA_8B, engine={"args": {"kv-cache-memory-bytes": 8 * GIB}})
    assert made.stage.kv_cache.value == 8 * GIB
    assert made.tokens.value == 65536


def test_offloaded_weights_leave_room() -> None:
    plain, offloaded = plan(configs.LLAMA_8B), plan(configs.LLAMA_8B, cpuOffload="10Gi")
    assert known(plain.stage.weights.value) - known(offloaded.stage.weights.value) == 10 * GIB


def test_what_if_names_no_pod_with_more_gpus_than_a_host_has() -> None:
    made = Inputs(spec(parallelism={"tensor": 4}), model_facts(configs.LLAMA_8B))
    options = [option.change for option in what_if(made, Role.DECODE, plan_role(made, Role.DECODE))]
    assert [change for change in options if "tensor" in change] == ["parallelism.tensor: 8"]


def test_what_if() -> None:
    inputs = Inputs(spec(engine={"enforceEager": False}), model_facts(configs.LLAMA_8B))
    made = plan_role(inputs, Role.DECODE)
    options = {option.change: option.plan for option in what_if(inputs, Role.DECODE, made)}
    assert list(options) == [
        "engine.kvCache.dtype: fp8", "parallelism.tensor: 2", "parallelism.tensor: 4", "model.maxModelLength: 4096",
        "enforceEager: true",
    ]  # fmt: skip
    assert known(options["engine.kvCache.dtype: fp8"].tokens.value) > 1.9 * known(made.tokens.value)
    assert known(options["parallelism.tensor: 2"].stage.weights.value) < 0.51 * known(made.stage.weights.value)
    assert known(options["model.maxModelLength: 4096"].concurrency.value) == pytest.approx(
        2 * known(made.concurrency.value), abs=0.02
    )
    assert known(options["enforceEager: true"].tokens.value) > known(made.tokens.value)


def test_what_does_not_fit_has_no_blocks() -> None:
    made = plan(configs.LLAMA_70B)
    assert known(made.stage.kv_cache.value) < 0
    assert made.blocks.value == 0
    assert made.concurrency.value == 0
    assert made.largest_length.value == 0


def test_the_least_memory_holds_one_request() -> None:
    made = plan(configs.LLAMA_8B)
    assert one_request(made).value == GIB  # 8192 tokens x 131072 bytes
    stage = made.stage
    parts = (stage.weights, stage.activations, stage.overhead)
    assert known(least_memory(made).value) == sum(known(part.value) for part in parts) + GIB


def test_no_length_anywhere_is_unknown() -> None:
    config = {key: value for key, value in configs.LLAMA_8B.items() if key != "max_position_embeddings"}
    made = plan(config, model={"maxModelLength": None})
    assert made.blocks.known
    assert made.tokens.value is None
    assert "maxModelLength" in made.tokens.note


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
def test_a_config_without_a_shape_is_refused_by_name(key: str) -> None:
    config = {name: value for name, value in configs.LLAMA_8B.items() if name != key}
    with pytest.raises(UnusableConfigError, match=key):
        model_facts(config)


@pytest.mark.parametrize(
    ("parallelism", "words"),
    [
        (
            {"tensor": 3},
            "3 does not split the model's 32 attention heads and 8 KV heads evenly. Use 1, 2, 4, 8, 16 or 32.",
        ),
        ({"pipeline": 2, "layerPartition": [10, 10]}, "adds up to 20 layers; the model has 32"),
        ({"pipeline": 40}, "40 stages for 32 layers"),
    ],
)
def test_a_split_that_vllm_refuses_is_refused(parallelism: configs.Config, words: str) -> None:
    changed = spec().model_copy(update={"parameter": spec(parallelism={"tensor": 1}).decode})
    document = changed.model_dump(by_alias=True, exclude_unset=True)
    document["parameter"]["parallelism"] = parallelism
    document["decode"]["parallelism"] = {"tensor": parallelism.get("tensor", 1)}
    inputs = Inputs(type(changed).model_validate(document), model_facts(configs.LLAMA_8B))
    with pytest.raises(UnusableSpecError, match=words) as raised:
        plan_role(inputs, Role.PARAMETER)
    assert "spec.parameter.parallelism" in str(raised.value)


def test_every_number_says_where_it_came_from() -> None:
    numbers = plan(configs.LLAMA_8B).as_json()
    for name in ("weightsBytes", "kvBytesPerToken", "activationBytes", "overheadBytes", "kvCapacityTokens",
                 "maxConcurrency"):  # fmt: skip
        number = numbers[name]
        assert isinstance(number, dict)
        assert number["source"] in {"measured", "computed", "unknown"}
        assert number["note"]
