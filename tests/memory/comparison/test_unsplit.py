"""P and D compared with the same GPUs unsplit: Llama-2-70B on four A100s, and other layouts."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1 import Spec
from pdinference.memory import Inputs, RolePlan, compare, fits, instance, model_facts, plan_role
from pdinference.memory.comparison.result import Comparison
from tests.memory import configs
from tests.memory.plans import known
from tests.properties.specs import SPECS

A100 = {"products": ["NVIDIA-A100-SXM4-80GB"]}
L4 = {"products": ["NVIDIA-L4"]}
CPU = {"type": "CPU"}
NOTE: dict[str, Any] = {
    "gpuMemoryUtilization": 0.85,
    "enableChunkedPrefill": True,
    "enforceEager": True,
    "maxNumBatchedTokens": 4096,
}


def compared(config: configs.Config, parameter: Any, decode: Any, *, length: int = 4096, **engine: Any) -> Comparison:
    spec = Spec.model_validate(
        {
            "model": {"source": {"path": "/models/any"}, "maxModelLength": length},
            "engine": engine,
            "parameter": parameter,
            "decode": decode,
        }
    )
    inputs = Inputs(spec, model_facts(config))
    return compare(inputs, {role: plan_role(inputs, role) for role in ENGINE_ROLES})


def layouts(comparison: Comparison, index: int = 0) -> list[tuple[int, int, int]]:
    """Servers, tensor-parallel size and GPUs left over."""
    return [(each.count, each.plan.settings.tensor, each.idle) for each in comparison.compared[index].servers]


def test_the_note_on_four_a100s_holds_thirty_times_as_much_unsplit() -> None:
    role = {"parallelism": {"tensor": 2}, "accelerator": A100}
    found = compared(configs.LLAMA_2_70B, role, role, **NOTE)
    (one,) = found.compared
    assert (one.split.tokens.value, one.split.concurrency.value) == (14_976, 3.66)
    assert (one.unsplit.tokens.value, one.unsplit.concurrency.value) == (453_120, 110.62)
    assert layouts(found) == [(1, 4, 0)]
    assert one.split.gpus == one.unsplit.gpus == 4
    assert known(one.split.weights.value) == pytest.approx(2 * known(one.unsplit.weights.value), rel=0.001)
    assert (one.split.tokens_for_each_gpu.value, one.unsplit.tokens_for_each_gpu.value) == (3744, 113_280)
    assert "TP 4 needs 4 GPUs in one host." in found.notes


def test_mig_slices_are_not_compared_as_whole_gpus() -> None:
    piece = {"accelerator": A100 | {"resourceName": "nvidia.com/mig-1g.10gb"}}
    assert not compared(configs.LLAMA_8B, piece, piece).compared[0].unsplit.tokens.known


def test_three_gpus_are_three_servers_or_one_and_a_gpu_left_over() -> None:
    p, d = {"parallelism": {"tensor": 1}, "accelerator": A100}, {"parallelism": {"tensor": 2}, "accelerator": A100}
    assert layouts(compared(configs.LLAMA_8B, p, d)) == [(3, 1, 0)]
    large = compared(configs.LLAMA_2_70B, p | {"cpuOffload": "90Gi"}, d)
    assert layouts(large) == [(1, 2, 1)], "on one GPU the model does not fit"


def test_replica_counts_are_compared_too_unless_they_follow_the_load() -> None:
    p, d = {"replicas": 2, "accelerator": A100}, {"replicas": 3, "accelerator": A100}
    found = compared(configs.LLAMA_8B, p, d)
    one, all_of_them = found.compared
    assert all_of_them.instances == {Role.PARAMETER: 2, Role.DECODE: 3}
    assert (one.split.gpus, all_of_them.split.gpus) == (2, 5)
    assert known(all_of_them.split.tokens.value) == 3 * known(one.split.tokens.value)
    assert layouts(found, 1) == [(5, 1, 0)]
    scaled = compared(configs.LLAMA_8B, p, d | {"autoscaling": {"maxReplicas": 5}})
    assert len(scaled.compared) == 1
    assert "Replica counts follow the load" in " ".join(scaled.notes)
    assert len(compared(configs.LLAMA_8B, p, d | {"replicas": 0}).compared) == 1


def test_different_products_have_servers_of_their_own() -> None:
    found = compared(configs.LLAMA_8B, {"accelerator": A100}, {"accelerator": L4})
    a100, l4 = found.compared[0].servers
    assert (a100.product, l4.product) == ("NVIDIA-A100-SXM4-80GB", "NVIDIA-L4")
    assert found.compared[0].unsplit.tokens.value == known(a100.plan.tokens.value) + known(l4.plan.tokens.value)
    assert "one server over several is not compared" in " ".join(found.notes)


def test_the_smallest_of_several_products_is_planned_for() -> None:
    both = {"accelerator": {"products": ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB"]}}
    (servers,) = compared(configs.LLAMA_8B, both, both).compared[0].servers
    assert servers.product == "NVIDIA-A100-SXM4-40GB"


def test_nodes_of_p_with_other_products_are_grouped_with_their_like() -> None:
    h100 = {"products": ["NVIDIA-H100-80GB-HBM3"]}
    steps = {"maxNumBatchedTokens": 8192, "maxNumSeqs": 256}
    p = {"parallelism": {"tensor": 4, "pipeline": 2, "nodes": 2}, **steps}
    both = p | {"nodePools": [h100, A100]}
    found = compared(configs.LLAMA_70B, both, {"parallelism": {"tensor": 4}, "accelerator": h100})
    assert [(each.gpus, each.product) for each in found.compared[0].servers] == [
        (8, "NVIDIA-H100-80GB-HBM3"),
        (4, "NVIDIA-A100-SXM4-80GB"),
    ]
    rest = p | {"nodePools": [h100, {}], "accelerator": A100}
    found = compared(configs.LLAMA_70B, rest, {"parallelism": {"tensor": 4}, "accelerator": A100})
    assert [each.gpus for each in found.compared[0].servers] == [4, 8]


def test_cpu_is_no_gpu_that_could_be_compared() -> None:
    space = {"accelerator": CPU, "env": {"VLLM_CPU_KVCACHE_SPACE": "16"}}
    neither = compared(configs.LLAMA_8B, space, space)
    assert neither.compared == ()
    assert "no GPUs to compare" in neither.notes[0]
    on_p = compared(configs.LLAMA_8B, {"accelerator": A100}, space)
    assert (on_p.compared[0].split.tokens.value, on_p.compared[0].split.gpus) == (131_072, 1)
    assert layouts(on_p) == [(1, 1, 0)]
    assert "Only P's GPUs are compared" in " ".join(on_p.notes)
    on_d = compared(configs.LLAMA_8B, space, {"accelerator": A100})
    assert "Only D's GPUs are compared" in " ".join(on_d.notes)


def test_data_parallel_copies_become_those_of_one_server() -> None:
    role = {"parallelism": {"tensor": 2, "data": 2, "expert": True}, "accelerator": A100}
    found = compared(configs.QWEN3_30B_A3B, role, role)
    (servers,) = found.compared[0].servers
    made = servers.plan.settings
    assert (servers.count, made.tensor * made.data, made.expert_ranks) == (1, 8, 8)
    assert servers.holding.tokens.value == made.data * known(servers.plan.tokens.value)


def test_an_unknown_device_is_not_guessed() -> None:
    found = compared(configs.LLAMA_8B, {}, {})
    assert not found.compared[0].unsplit.tokens.known
    assert found.compared[0].unsplit.weights.known
    assert "accelerator.products" in found.compared[0].unsplit.tokens.note
    one_known = compared(configs.LLAMA_8B, {"accelerator": A100}, {"accelerator": {"products": ["Unheard-Of"]}})
    assert not one_known.compared[0].unsplit.tokens.known


def test_a_model_that_fits_in_neither_way_is_said_to() -> None:
    found = compared(configs.LLAMA_70B, {"accelerator": L4}, {"accelerator": L4})
    assert "The model does not fit 2 NVIDIA-L4 unsplit." in found.notes


def test_prompts_are_computed_in_the_larger_steps_of_p() -> None:
    found = compared(configs.LLAMA_8B, {"accelerator": A100, "maxNumBatchedTokens": 16384}, {"accelerator": A100})
    assert found.compared[0].servers[0].plan.settings.max_num_batched_tokens == 16384


MODELS = st.sampled_from(
    [
        configs.LLAMA_8B,
        configs.LLAMA_70B,
        configs.QWEN3_30B_A3B,
        configs.DEEPSEEK_V3,
        configs.GEMMA2_9B,
        configs.QWEN_7B,
    ]
)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(SPECS, MODELS)
def test_parts_add_up_on_all_gpus_whatever_the_spec(document: Any, config: configs.Config) -> None:
    try:
        spec = Spec.model_validate(document)
        inputs = Inputs(spec, model_facts(config))
        plans = {role: plan_role(inputs, role) for role in ENGINE_ROLES}
    except ValueError:  # refused before anything is compared
        return
    for each in compare(inputs, plans).compared:
        assert sum(servers.gpus for servers in each.servers) == each.split.gpus
        for servers in each.servers:
            assert servers.count >= 1
            assert servers.gpus == servers.count * instance.devices(servers.plan) + servers.idle
            _check_parts(servers.plan)
            assert servers.holding.tokens.known == servers.plan.tokens.known


def _check_parts(plan: RolePlan) -> None:
    stage = plan.stage
    parts = [stage.weights.value, stage.activations.value, stage.overhead.value, stage.kv_cache.value]
    if stage.requested.known and plan.settings.kv_budget is None and None not in parts:
        assert sum(map(known, parts)) == pytest.approx(known(stage.requested.value))
    if plan.tokens.known:
        assert known(plan.tokens.value) >= 0
        assert fits(plan) is not None
