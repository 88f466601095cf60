"""Every unknown number names the missing input, and each field and option that supplies it."""

from collections.abc import Iterator

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.checks.facts import Facts
from pdinference.checks.memory import judge
from pdinference.memory import Figure, Inputs, RolePlan, model_facts, plan_role
from tests.memory import configs
from tests.memory.configs import Config
from tests.memory.plans import plan, spec

WEIGHTS = ("architecture.weightsBytes", "spec.model.inspect", "spec.model.cache", "--model-dir", "--online")
DEVICE = ("accelerator.memory", "--memory")


def figures(made: RolePlan) -> Iterator[Figure]:
    stage = made.stage
    yield from (made.memory, made.blocks, made.tokens, made.concurrency, made.largest_length)
    yield from (stage.weights, stage.activations, stage.overhead, stage.kv_bytes_per_token, stage.kv_cache)


def unknown_notes(made: RolePlan) -> set[str]:
    return {figure.note for figure in figures(made) if not figure.known}


@pytest.mark.parametrize(
    ("config", "ways"),
    [
        ({"model_type": "strange"}, WEIGHTS),
        ({"vision_config": {"hidden_size": 8}}, WEIGHTS),
        ({"quantization_config": {"quant_method": "mxfp4"}}, ("architecture.weightsBytes",)),
        ({"quantization_config": {"quant_method": "awq", "bits": "4"}}, ("architecture.weightsBytes",)),
        ({"intermediate_size": "x"}, ("spec.model.architecture.config", "--model-config")),
        ({"mamba_d_state": 16}, ("observedKvCapacityTokens", "log")),
    ],
    ids=["model type", "tower", "method", "quantisation", "member", "state"],
)
def test_what_a_config_leaves_unknown(config: Config, ways: tuple[str, ...]) -> None:
    notes = unknown_notes(plan(configs.LLAMA_8B | config))
    assert notes
    assert all(any(way in note for note in notes) for way in ways), notes


@pytest.mark.parametrize(
    ("accelerator", "ways"),
    [
        ({}, ("accelerator.products", *DEVICE)),
        ({"products": ["Strange-1"]}, ("product Strange-1", *DEVICE)),
        ({"type": "CPU"}, ("VLLM_CPU_KVCACHE_SPACE", *DEVICE)),
    ],
    ids=["no product", "unknown product", "CPU"],
)
def test_what_a_device_leaves_unknown(accelerator: Config, ways: tuple[str, ...]) -> None:
    (note,) = unknown_notes(plan(configs.LLAMA_8B, parameter={}, accelerator=accelerator))
    assert all(way in note for way in ways), note


@pytest.mark.parametrize(
    "stated",
    [
        {"engine": {"env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}},
        {"env": {"VLLM_CPU_KVCACHE_SPACE": "1"}},
        {"engine": {"args": {"kv-cache-memory-bytes": 2**30}}},
    ],
    ids=["engine", "role", "argument"],
)
def test_a_kv_cache_whose_size_is_stated_is_not_asked_for(stated: Config) -> None:
    (note,) = unknown_notes(plan(configs.LLAMA_8B, parameter={}, accelerator={"type": "CPU"}, **stated))
    assert "VLLM_CPU_KVCACHE_SPACE" not in note
    assert "state the node's memory in accelerator.memory" in note


def test_the_longest_request() -> None:
    endless = {key: value for key, value in configs.LLAMA_8B.items() if key != "max_position_embeddings"}
    made = plan(endless, model={"maxModelLength": None})
    assert made.largest_length.value is None, "not 0 tokens"
    for way in ("spec.model.maxModelLength", "--model-config", "--model-dir"):
        assert way in made.concurrency.note
        assert way in made.largest_length.note


def test_a_resource_of_whose_model_nothing_is_known() -> None:
    spec_ = Spec.model_validate({"model": {"source": {"path": "/models/any"}}})
    message = judge(spec_, Facts()).message
    for way in ("spec.model.architecture.config", "spec.model.inspect"):
        assert way in message


@pytest.mark.parametrize(
    "config",
    [{"model_type": "strange"}, {"intermediate_size": "x"}, {"quantization_config": {"quant_method": "mxfp4"}}],
)
def test_a_condition_names_fields_and_no_options(config: Config) -> None:
    spec_ = Spec.model_validate({"model": {"source": {"path": "/models/any"}}})
    for facts in (Facts(), Facts(model_facts(configs.LLAMA_8B | config)), Facts(model_facts(configs.LLAMA_8B))):
        message = judge(spec_, facts).message
        assert "In the resource: " in message
        assert "--" not in message
        assert "pdinference plan" not in message


def test_numbers_that_a_user_states_say_where() -> None:
    stated = plan(configs.LLAMA_8B, accelerator={"memory": "80Gi"})
    assert stated.memory.note == "accelerator.memory: 80 GiB, as stated."
    budget = plan(configs.LLAMA_8B, args={"kv-cache-memory-bytes": 2**30})
    assert budget.stage.kv_cache.note == "1 GiB, stated in the spec (kv-cache-memory-bytes)."


def test_the_largest_length_says_whose_limit_it_is() -> None:
    assert "the model ends at 131,072 tokens" in plan(configs.LLAMA_8B).largest_length.note
    endless = {key: value for key, value in configs.LLAMA_8B.items() if key != "max_position_embeddings"}
    made = plan_role(Inputs(spec(), model_facts(endless)), Role.DECODE)
    assert made.largest_length.note.endswith("at most 8,192 tokens, as maxModelLength says.")
