"""Whether the model fits its devices, with numbers and suggested changes."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.checks import Examination, examine
from pdinference.checks.remedies import larger_devices
from pdinference.manifests import RenderSettings
from pdinference.memory.gpus import gpu_memory
from tests.memory.configs import DEEPSEEK_V3, GEMMA2_9B, LLAMA_1B, LLAMA_8B, LLAMA_70B, QWEN3_30B_A3B, QWEN_14B

Make = Callable[..., dict[str, Any]]
L4 = {"accelerator": {"products": ["NVIDIA-L4"]}}
H200 = {"accelerator": {"products": ["NVIDIA-H200"]}}


def examined(document: Make, config: dict[str, Any], **spec: Any) -> Examination:
    model = {"source": {"path": "/a"}, "architecture": {"config": config}, **spec.pop("model", {})}
    return examine(document(model=model, **spec), RenderSettings())


def test_what_fits_is_accepted_with_its_numbers(document: Make) -> None:
    found = examined(document, LLAMA_8B, parameter=H200, decode=H200, model={"maxModelLength": 8192})
    assert found.problems == ()
    assert found.memory.fits is True
    assert "room for" in found.memory.message
    assert found.memory.status is not None
    assert found.memory.status.decode is not None
    assert found.memory.status.decode.kv_bytes_per_token == 131072


def test_what_does_not_fit_is_refused_with_numbers_and_three_changes(document: Make) -> None:
    found = examined(document, LLAMA_8B, parameter=H200, decode=L4)
    (problem,) = found.problems
    assert problem.field == "spec.decode"
    assert "It needs 3" in problem.message
    assert "weights 15.0 GiB" in problem.message
    assert "KV cache of one request of 131,072 tokens 16.0 GiB" in problem.message
    assert "vLLM may use 20.3 GiB: 0.92 of the device's 22.0 GiB" in problem.message
    assert len(changes(problem.message)) == 3
    assert "spec.memoryPolicy: Warn" in problem.message
    assert found.memory.fits is False


def test_a_policy_turns_it_into_a_warning(document: Make) -> None:
    found = examined(document, LLAMA_8B, parameter=H200, decode=L4, memoryPolicy="Warn", transfer={"path": "Network"})
    assert found.problems == ()
    assert found.resource is not None
    (warning,) = found.warnings
    assert warning.message.startswith("The model does not fit one device.")
    assert found.memory.fits is False


def test_pipeline_stages_are_proposed_for_p_unless_its_tiers_rule_them_out(document: Make) -> None:
    h100 = {"accelerator": {"products": ["NVIDIA-H100-80GB-HBM3"]}}
    decode = {**h100, "parallelism": {"tensor": 4}}
    tiers = {"kvTiers": {"cpu": {"size": "8Gi"}}}
    stages = {"spec.parameter.parallelism.pipeline": 2}
    for parameter, proposed in ((h100, True), (h100 | tiers, False)):
        found = examined(document, LLAMA_70B, parameter=parameter, decode=decode, model={"maxModelLength": 8192})
        (problem,) = found.problems
        assert (stages in changes(problem.message)) is proposed, problem.message


@pytest.mark.parametrize("config", [LLAMA_8B, LLAMA_70B, QWEN_14B, GEMMA2_9B, QWEN3_30B_A3B, DEEPSEEK_V3, LLAMA_1B])
@pytest.mark.parametrize("product", ["NVIDIA-L4", "NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3"])
def test_each_change_that_is_named_really_fits(document: Make, config: dict[str, Any], product: str) -> None:
    roles = {role: {"accelerator": {"products": [product]}} for role in ("parameter", "decode")}
    for problem in examined(document, config, **roles).problems:
        for change in changes(problem.message):
            made = document(model={"source": {"path": "/a"}, "architecture": {"config": config}}, **roles)
            for path, value in change.items():
                put(made, path, value)
            left = examine(made, RenderSettings()).problems
            assert problem.field not in {other.field for other in left}, (change, left)


@pytest.mark.parametrize("resource_name", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_larger_devices_are_of_the_same_vendor(resource: Callable[..., PDInference], resource_name: str) -> None:
    accelerator = {"products": ["X"], "resourceName": resource_name}
    spec = resource(parameter={"accelerator": accelerator}).spec
    changes = larger_devices(spec, Role.PARAMETER)
    named = [product for change in changes for product in change["parameter.accelerator.products"]]
    vendor = {"nvidia.com/gpu": "NVIDIA", "amd.com/gpu": "AMD"}.get(resource_name, "none")
    assert all(product.startswith(vendor) for product in named)
    assert bool(named) is (vendor != "none")
    assert all(gpu_memory(product).known for product in named)


def test_memory_may_be_stated(document: Make) -> None:
    stated = {"accelerator": {"memory": "16Gi"}}
    (problem, _) = examined(document, LLAMA_8B, parameter=stated, decode=stated).problems
    assert "16.0 GiB" in problem.message


def test_on_cpu_the_kv_cache_counts(document: Make) -> None:
    cpu = {"accelerator": {"type": "CPU"}, "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}
    (_, problem) = examined(document, LLAMA_8B, parameter=cpu, decode=cpu).problems
    assert "needs 16.0 GiB of KV cache, but only 1.0 GiB is free" in problem.message
    assert 'spec.decode.env.VLLM_CPU_KVCACHE_SPACE: "16"' in problem.message


def test_on_cpu_a_kv_cache_that_is_larger_than_the_stated_memory_is_refused(document: Make) -> None:
    cpu = {"accelerator": {"type": "CPU", "memory": "40Gi"}, "env": {"VLLM_CPU_KVCACHE_SPACE": "32"}}
    problems = examined(document, LLAMA_8B, parameter=cpu, decode=cpu).problems
    assert [problem.field for problem in problems] == ["spec.parameter", "spec.decode"]
    assert (
        "states a KV cache of 32.0 GiB. With weights (15.0 GiB), 47.0 GiB of 40.0 GiB are in use" in problems[0].message
    )
    fitting = cpu | {"env": {"VLLM_CPU_KVCACHE_SPACE": "16"}}
    assert examined(document, LLAMA_8B, parameter=fitting, decode=fitting).problems == ()


def test_what_is_not_known_is_neither_refused_nor_guessed(document: Make) -> None:
    without_device = examined(document, LLAMA_8B)
    assert (without_device.problems, without_device.memory.fits) == ((), None)
    assert "accelerator.memory" in without_device.memory.message
    without_model = examine(document(parameter=L4, decode=L4), RenderSettings())
    assert (without_model.problems, without_model.memory.fits) == ((), None)
    assert "spec.model.architecture.config" in without_model.memory.message


@pytest.mark.parametrize("block", [[128], [128, 0], ["a", "b"], 128, {"rows": 128}, [128, 128, 128], [True, 128]])
def test_a_block_of_scales_that_is_none_leaves_memory_unknown(document: Make, block: Any) -> None:
    config = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8", "weight_block_size": block}}
    found = examined(document, config, parameter=H200, decode=H200)
    assert (found.problems, found.memory.fits) == ((), None)
    assert "weight_block_size" in found.memory.message


@pytest.mark.parametrize("method", ["awq", "gptq_marlin", "compressed-tensors"])
def test_a_quantised_model_without_its_config_is_not_counted_as_whole(document: Make, method: str) -> None:
    thirteen = LLAMA_8B | {"hidden_size": 8192, "num_hidden_layers": 60}  # fits no L4 as it is
    found = examined(document, thirteen, parameter=L4, decode=L4, model={"quantization": method})
    assert (found.problems, found.memory.fits) == ((), None)
    assert "config.json has no quantization_config" in found.memory.message


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (["re:("], "missing )"),
        ([5], "must be of type string"),
        (["re:.*(?!mlp)"], "(?!"),
        (["a" * 257], "at most 256 characters"),
        (["a"] * 1025, "at most 1024 items"),
        (["re:.*[a-z]{200}"] * 50, "too large"),
        ("lm_head", "must be of type array"),
        ({"lm_head": True}, "must be of type array"),
    ],
)
def test_patterns_of_modules_that_do_not_fit_leave_memory_unknown(document: Make, patterns: Any, words: str) -> None:
    group = {"weights": {"num_bits": 8, "strategy": "tensor"}}
    quantization = {"quant_method": "compressed-tensors", "config_groups": {"a": group}, "ignore": patterns}
    found = examined(document, {**LLAMA_8B, "quantization_config": quantization}, parameter=H200, decode=H200)
    assert (found.problems, found.memory.fits) == ((), None)
    assert "quantization_config cannot be read" in found.memory.message
    assert words in found.memory.message


@pytest.mark.parametrize("pattern", ["([a-z_.0-9]+)+!", "(a|a)*(a|a)*b", "(.*)*x", "((a?){30}){30}b"])
def test_a_pattern_that_backtracks_forever_elsewhere_takes_no_time(document: Make, pattern: str) -> None:
    quantization = {"quant_method": "awq", "bits": 4, "modules_to_not_convert": [f"re:{pattern}"]}
    found = examined(document, {**LLAMA_8B, "quantization_config": quantization}, parameter=H200, decode=H200)
    assert found.problems == ()


@pytest.mark.parametrize("bits", ["4" * 20, [4], True, 0, -4, 17, 4.0, 2**62, {}])
def test_bits_that_are_no_small_number_leave_memory_unknown(document: Make, bits: Any) -> None:
    config = {**LLAMA_8B, "quantization_config": {"quant_method": "gptq", "bits": bits}}
    found = examined(document, config, parameter=H200, decode=H200)
    assert (found.problems, found.memory.fits) == ((), None)
    assert "bits" in found.memory.message


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("layer_types", 5),
        ("intermediate_size", [8192] * 32),
        ("num_key_value_heads", "8"),
        ("head_dim", 2**62),
        ("sliding_window", True),
        ("tie_word_embeddings", "yes"),
        ("model_type", ["llama"]),
        ("mlp_only_layers", [[1]]),
        ("text_config", 7),
        ("quantization_config", {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 0}}),
    ],
)
def test_a_member_that_does_not_fit_leaves_memory_unknown(document: Make, member: str, value: Any) -> None:
    found = examined(document, LLAMA_8B | {member: value}, parameter=H200, decode=H200)
    assert (found.problems, found.memory.fits) == ((), None)
    assert member.removeprefix("quantization_config") in found.memory.message
    assert found.memory.status is not None
    assert found.memory.status.decode is not None
    assert found.memory.status.decode.kv_bytes_per_token is None


def test_changes_are_found_for_a_quantised_model_that_the_status_knows(document: Make) -> None:
    made = document(model={"source": {"path": "/a"}, "quantization": "awq"}, parameter=L4, decode=L4)
    resource = examine(made, RenderSettings()).resource
    assert resource is not None
    stored = {**LLAMA_70B, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    facts = {"source": resource.spec.model.source.identity(), "config": stored}
    (problem, _) = examine(made, RenderSettings(), lambda _: {"facts": facts}).problems
    assert changes(problem.message)


def test_a_stated_size_stays_what_it_is_with_another_quantisation(document: Make) -> None:
    """So fp8 is no change that helps, unless the number is changed too."""
    device = {"accelerator": {"memory": "16Gi"}}
    architecture = {"config": LLAMA_8B, "weightsBytes": 2 * 8_030_261_248}
    model: dict[str, Any] = {"architecture": architecture, "maxModelLength": 8192}
    for problem in examined(document, LLAMA_8B, parameter=device, decode=device, model=model).problems:
        assert "weights 15.0 GiB" in problem.message
        assert "quantization" not in problem.message
    quantised = examined(document, LLAMA_8B, parameter=device, decode=device, model={**model, "quantization": "fp8"})
    assert "weights 15.0 GiB" in quantised.problems[0].message


def test_no_change_needs_a_pod_with_more_gpus_than_a_host_has(document: Make) -> None:
    role = {"accelerator": {"products": ["NVIDIA-H100-80GB-HBM3"]}, "parallelism": {"tensor": 8}}
    of_p, of_d = examined(document, DEEPSEEK_V3, parameter=role, decode=role).problems
    assert of_p.message.startswith("The model does not fit the 8 devices of an instance. Each needs 9")
    two_nodes, *others = changes(of_p.message)
    assert two_nodes == {"spec.parameter.parallelism.pipeline": 2, "spec.parameter.parallelism.nodes": 2}
    named = {path for change in (*others, *changes(of_d.message)) for path in change}
    assert named
    assert not {path for path in named if "parallelism" in path}


def test_a_larger_tensor_parallel_size_may_also_need_a_shorter_length(document: Make) -> None:
    of_p, of_d = examined(document, LLAMA_70B, parameter=L4, decode=L4).problems
    (both,) = changes(of_p.message)
    assert both["spec.parameter.parallelism.tensor"] == both["spec.decode.parallelism.tensor"] == 8
    assert 0 < both["spec.model.maxModelLength"] < 131072
    (alone,) = changes(of_d.message)
    assert list(alone) == ["spec.decode.parallelism.tensor", "spec.model.maxModelLength"]


def changes(message: str) -> list[dict[str, Any]]:
    """The changes of a message as values by path."""
    listed = message.split("Make one of these changes: ")[1].split(". Or set", maxsplit=1)[0]
    return [
        {
            path: yaml.safe_load(value)
            for path, value in (part.split(": ", 1) for part in re.split(" with | and ", change))
        }
        for change in listed.split("; ")
    ]


def put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[last] = value
