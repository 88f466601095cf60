"""The table of architectures compared with the model classes, which are created without memory."""

import warnings
from typing import Any

import pytest

from pdinference.memory import model_facts
from pdinference.memory.model.architectures import ARCHITECTURES
from tests.memory.configs import Config
from tests.memory.model.families import MEMBERS, NOT_IN_TRANSFORMERS, WITHIN_OTHERS
from tests.memory.sizes import parameters
from tests.memory.small import small_config

pytestmark = pytest.mark.vllm

_CORRECTIONS = ("e_score_correction_bias", "expert_bias")
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
    "falcon_h1": {"mamba_rms_norm": True, "mamba_conv_bias": False},
    "gemma4_text": {
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
        "num_global_key_value_heads": 1,
    },
    "glm4_moe_lite": {"mlp_layer_types": ["dense", "dense", "sparse", "sparse"]},
    "glm_moe_dsa": {"index_topk_pattern": "FSSF"},
    "granitemoehybrid": {"attention_bias": True, "num_local_experts": 0, "mamba_proj_bias": True},
    "hy_v3": {"num_shared_experts": 2},
    "jamba": {"expert_layer_period": 3, "expert_layer_offset": 2, "mamba_conv_bias": False},
    "laguna": {"gating": "per-element", "shared_expert_intermediate_size": 32},
    "lfm2": {"conv_bias": True},
    "lfm2_moe": {"use_expert_bias": False, "num_dense_layers": 2},
    "llama4_text": {"interleave_moe_layer_step": 1},
    "mellum": {"mlp_layer_types": ["dense", "sparse", "sparse", "dense"]},
    "nemotron_h": {"layers_block_type": ["mamba", "moe", "attention", "moe"], "moe_latent_size": 16},
    "qwen3_next": {"mlp_only_layers": [1], "full_attention_interval": 2},
}
"""Members that change what tensors there are."""


def counted(model_type: str, members: dict[str, Any]) -> tuple[int, Config]:
    """Parameters of the class of transformers for such a config, and that config."""
    import torch  # noqa: PLC0415 - only where vLLM is installed
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    config = small_config(model_type, MEMBERS.get(model_type, {}) | members)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(config)
    biases = sum(buffer.numel() for name, buffer in model.named_buffers() if name.endswith(_CORRECTIONS))
    return sum(each.numel() for each in model.parameters()) + biases, config.to_dict()


@pytest.mark.parametrize("members", [{}, "switched"], ids=["as it is", "switched"])
@pytest.mark.parametrize("model_type", sorted(ARCHITECTURES.keys() - NOT_IN_TRANSFORMERS - WITHIN_OTHERS))
def test_an_architecture_has_the_parameters_of_its_class(model_type: str, members: Any) -> None:
    count, config = counted(model_type, SWITCHED.get(model_type, {}) if members else {})
    facts = model_facts(config)
    assert facts.architecture_known
    # Exact, but for the two numbers in each of Apertus' activations.
    assert parameters(facts) == pytest.approx(count, abs=8 if model_type == "apertus" else 0)
