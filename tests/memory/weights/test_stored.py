"""Weights with known file sizes only, and weights stated in the spec."""

from dataclasses import replace
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.memory import Inputs, KnownWeights, StatedWeights, StoredFiles, model_facts, plan_role
from pdinference.memory.plan import StagePlan, plan_settings
from tests.memory import configs
from tests.memory.configs import Config
from tests.memory.plans import known, plan, spec

GIB = 2**30
TWO = StoredFiles(".bin", 2, 14 * GIB)
STRANGE = configs.LLAMA_8B | {"model_type": "strange", "torch_dtype": "float16"}


def stage(config: Config, known_weights: KnownWeights, **changes: Any) -> StagePlan:
    return plan_role(Inputs(spec(**changes), model_facts(config), known_weights), Role.DECODE).stage


@pytest.mark.parametrize(
    ("stored", "served", "size"),
    [
        ("float16", "auto", 14),
        ("bfloat16", "float16", 14),
        ("torch.float16", "auto", 14),
        ("float32", "auto", 7),  # vLLM takes 16 bits for it
        ("float32", "float32", 14),
        ("float16", "float32", 28),
    ],
)
def test_sizes_are_scaled_to_the_dtype_that_is_served(stored: str, served: str, size: int) -> None:
    weights = stage(STRANGE | {"torch_dtype": stored}, TWO, model={"dtype": served}).weights
    assert weights.value == size * GIB
    assert weights.note.startswith(f"Sizes of 2 .bin files: 14.00 GiB in {stored} (torch_dtype of config.json)")
    assert ("in place of" in weights.note) == (size != 14)


@pytest.mark.parametrize("dtype", [None, "int8", ""])
def test_without_a_torch_dtype_sizes_say_nothing(dtype: str | None) -> None:
    weights = stage(STRANGE | {"torch_dtype": dtype}, TWO).weights
    assert weights.value is None
    for words in ("Sizes of 2 .bin files: 14.00 GiB", "torch_dtype", "architecture.weightsBytes", "--model-config"):
        assert words in weights.note


def test_ranks_and_stages_share_evenly_where_tensors_are_unknown() -> None:
    inputs = Inputs(spec(parallelism={"tensor": 2}), model_facts(STRANGE), TWO)
    made = plan_role(inputs, Role.DECODE)
    assert made.stage.weights.value == 7 * GIB
    assert "shared evenly by ranks and layers" in made.stage.weights.note
    settings = replace(made.settings, layer_partition=(8, 24))
    parts = plan_settings(inputs, settings, made.memory).stages
    assert [known(part.weights.value) / GIB for part in parts] == [14 / 2 / 4, 14 / 2 * 3 / 4]


def test_the_architecture_wins_over_sizes_and_says_both() -> None:
    by_shape, made = plan(configs.LLAMA_8B).stage.weights, stage(configs.LLAMA_8B, TWO).weights
    assert made.value == by_shape.value
    assert made.note == f"{by_shape.note} Sizes of 2 .bin files: 14.00 GiB."


def test_offloaded_weights_and_lora_slots_of_unknown_tensors() -> None:
    weights = stage(STRANGE, TWO, model={"lora": {"maxRank": 8}}, engine={"cpuOffload": "4Gi"}).weights
    assert weights.value == 10 * GIB
    assert "without LoRA slots" in weights.note
    assert "cpuOffload" in weights.note


AWQ = configs.QWEN_14B_AWQ | {"model_type": "strange"}


def test_quantised_files_keep_their_size() -> None:
    assert stage(AWQ, TWO, model={"dtype": "half"}).weights.value == 14 * GIB


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (AWQ | {"torch_dtype": "float32"}, {"dtype": "half"}),
        (STRANGE, {"quantization": "fp8"}),
        (STRANGE | {"quantization_config": {"quant_method": "mxfp4"}}, {}),
    ],
    ids=["cast in part", "quantised on load", "unknown method"],
)
def test_a_size_after_quantisation_has_to_be_stated(config: Config, model: Config) -> None:
    weights = stage(config, TWO, model=model).weights
    assert weights.value is None
    assert "state spec.model.architecture.weightsBytes" in weights.note
    stated = stage(config, StatedWeights(5 * GIB), model=model).weights
    assert stated.value == 5 * GIB


@pytest.mark.parametrize(
    ("config", "shared"),
    [(configs.LLAMA_8B, "as the architecture (llama) says"), (STRANGE, "shared evenly by ranks and layers")],
    ids=["known", "unknown"],
)
def test_a_stated_size_wins_and_is_called_stated(config: Config, shared: str) -> None:
    weights = stage(config, StatedWeights(14_001_182_201), parallelism={"tensor": 2}).weights
    assert known(weights.value) == pytest.approx(14_001_182_201 / 2, rel=0.005)
    assert "spec.model.architecture.weightsBytes: 13.04 GiB, stated in the spec" in weights.note
    assert shared in weights.note
    assert "eaders" not in weights.note


def test_what_if_scales_sizes_too() -> None:
    made = plan_role(Inputs(spec(), model_facts(STRANGE), TWO), Role.DECODE)
    inputs = Inputs(spec(), model_facts(STRANGE), TWO)
    halved = plan_settings(inputs, made.settings.with_tensor(2), made.memory)
    assert halved.stage.weights.value == 7 * GIB
