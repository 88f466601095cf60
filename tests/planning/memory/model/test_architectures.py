"""The table of architectures compared with the model classes, which are created without memory."""

import warnings
from typing import Any

import pytest

from pdinference.planning.memory import model_facts
from pdinference.planning.memory.model.architectures import ARCHITECTURES
from pdinference.planning.memory.model.shape import ModelFacts
from tests.planning.memory.configs import Config
from tests.planning.memory.model.families import NOT_IN_TRANSFORMERS
from tests.planning.memory.sizes import parameters
from tests.planning.memory.small import small_config

pytestmark = pytest.mark.vllm

SWITCHED: dict[str, dict[str, Any]] = {
    "cohere": {"use_qk_norm": True},
    "glm4_moe": {"use_qk_norm": True, "attention_bias": True},
    "llama": {"attention_bias": True, "mlp_bias": True},
    "seed_oss": {"attention_out_bias": True},
    "stablelm": {"use_qkv_bias": True},
    "ernie4_5": {"use_bias": True},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True},
    "starcoder2": {"use_bias": False},
    "gpt_neox": {"attention_bias": False},
    "qwen2_moe": {"decoder_sparse_step": 2},
    "ernie4_5_moe": {"moe_layer_interval": 2},
}
"""Members that change what tensors there are."""


def counted(model_type: str, members: dict[str, Any]) -> tuple[int, Config]:
    """Parameters of the class of transformers for such a config, and that config."""
    import torch  # noqa: PLC0415 - only where vLLM is installed
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    config = small_config(model_type, members)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(config)
    biases = sum(buffer.numel() for name, buffer in model.named_buffers() if "e_score_correction_bias" in name)
    return sum(each.numel() for each in model.parameters()) + biases, config.to_dict()


def without_rounding(facts: ModelFacts) -> int:
    """Our count; routers' float32 biases count four bytes there, and one element here."""
    moe = facts.moe
    extra = 3 * moe.experts * len(moe.layers) if moe and moe.correction_bias else 0
    return parameters(facts) - extra


@pytest.mark.parametrize("members", [{}, "switched"], ids=["as it is", "switched"])
@pytest.mark.parametrize("model_type", sorted(ARCHITECTURES.keys() - NOT_IN_TRANSFORMERS))
def test_an_architecture_has_the_parameters_of_its_class(model_type: str, members: Any) -> None:
    count, config = counted(model_type, SWITCHED.get(model_type, {}) if members else {})
    facts = model_facts(config)
    assert facts.architecture_known
    # Exact, but for the two numbers in each of Apertus' activations.
    assert without_rounding(facts) == pytest.approx(count, abs=8 if model_type == "apertus" else 0)
