"""Models with a vision tower compared with the classes of transformers, which are created without memory."""

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pdinference.memory import model_facts
from tests.memory.configs import LLAMA_8B, Config
from tests.memory.model.families import MEMBERS, WITHIN_OTHERS
from tests.memory.model.tower_classes import RANKS
from tests.memory.plans import known, plan
from tests.memory.sizes import elements, parameters
from tests.memory.small import small_config

_TEXT: Config = {"tie_word_embeddings": False}
_DEEP: Config = {"depth": 3, "num_heads": 4, "patch_size": 4, "spatial_merge_size": 2}
_LAYERS: Config = {"num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 4, "image_size": 32}
_SIZES: Config = {"hidden_size": 32, "intermediate_size": 48}
TOWERS: dict[str, tuple[str, Config]] = {
    "gemma3": ("gemma3_text", _LAYERS | _SIZES | {"vision_use_head": False}),
    "gemma4": (
        "gemma4_text",
        _LAYERS | _SIZES | {"num_key_value_heads": 4, "head_dim": 12, "position_embedding_size": 64},
    ),
    "glm4v": ("glm4v_text", _DEEP | _SIZES | {"out_hidden_size": 64, "image_size": 32}),
    "glm4v_moe": ("glm4v_moe_text", _DEEP | _SIZES | {"out_hidden_size": 64, "image_size": 32}),
    "kimi_k25": (
        "deepseek_v3",
        _LAYERS | _SIZES | {"pos_emb_height": 8, "pos_emb_width": 6, "merge_kernel_size": [2, 1]},
    ),
    "llama4": (
        "llama4_text",
        _LAYERS
        | {"hidden_size": 32, "intermediate_size": 128, "vision_output_dim": 40}
        | {"projector_input_dim": 40, "projector_output_dim": 40},
    ),
    "mistral3": ("mistral", _LAYERS | _SIZES | {"model_type": "pixtral"}),
    "qwen2_vl": ("qwen2_vl_text", _DEEP | {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}),
    "qwen2_5_vl": ("qwen2_5_vl_text", _DEEP | _SIZES | {"out_hidden_size": 64}),
    "qwen3_vl": ("qwen3_vl_text", _DEEP | _SIZES | {"out_hidden_size": 64, "deepstack_visual_indexes": [0, 1]}),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", _DEEP | _SIZES | {"out_hidden_size": 64, "deepstack_visual_indexes": [1]}),
    "qwen3_5": ("qwen3_5_text", _DEEP | _SIZES | {"out_hidden_size": 64}),
    "qwen3_5_moe": ("qwen3_5_moe_text", _DEEP | _SIZES | {"out_hidden_size": 64}),
}
"""Of each whole model, the type of its language model, and members of its tower."""

CLASSES = {
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma4": "Gemma4ForConditionalGeneration",
    "glm4v": "Glm4vForConditionalGeneration",
    "glm4v_moe": "Glm4vMoeForConditionalGeneration",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "llama4": "Llama4ForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
}
"""Their classes in vLLM."""
WHOLE: dict[str, Config] = {"kimi_k25": {"projection_hidden_size": 32}}
"""Members of the whole model, by its type; vLLM takes the hidden size of the tower."""
IN_FILES: dict[str, Config] = {
    "glm4v_text": {"attention_bias": True},
    "deepseek_v3": {"topk_method": "noaux_tc"},
    "glm4v_moe_text": {"attention_bias": True, "head_dim": 16, "use_qk_norm": False},
    "qwen3_vl_moe_text": {"norm_topk_prob": True},
}
"""Members that published files have, and the classes of transformers do not."""


def _config(model_type: str) -> Any:
    from transformers import AutoConfig  # noqa: PLC0415 - only where vLLM is installed

    text_type, vision = TOWERS[model_type]
    text = small_config(text_type, MEMBERS.get(text_type, {}) | _TEXT).to_dict() | IN_FILES.get(text_type, {})
    whole = WHOLE.get(model_type, {})
    return AutoConfig.for_model(model_type, text_config=text, vision_config=vision, tie_word_embeddings=False, **whole)


def _counted(model_type: str) -> tuple[int, Config]:
    import torch  # noqa: PLC0415 - only where vLLM is installed
    from transformers import AutoModelForImageTextToText  # noqa: PLC0415

    config = _config(model_type)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = AutoModelForImageTextToText.from_config(config)
    biases = sum(buffer.numel() for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias"))
    return sum(each.numel() for each in model.parameters()) + biases, config.to_dict()


@pytest.mark.vllm
@pytest.mark.parametrize("model_type", TOWERS)
def test_a_model_with_a_tower_has_the_parameters_of_its_class(model_type: str) -> None:
    count, config = _counted(model_type)
    facts = model_facts(config)
    assert facts.architecture_known
    assert facts.has_more == ("vision_config",)
    assert parameters(facts) == count


@pytest.mark.vllm
def test_a_rank_holds_what_vllms_class_with_a_tower_allocates(tmp_path: Path) -> None:
    configs = {name: _config(name).to_dict() | {"architectures": [CLASSES[name]]} for name in TOWERS}
    command = [sys.executable, "-m", "tests.memory.model.tower_classes", str(tmp_path)]
    made = subprocess.run(command, input=json.dumps(configs), capture_output=True, text=True, check=False, timeout=300)
    assert made.returncode == 0, made.stderr[-2000:]
    counted = json.loads(made.stdout.splitlines()[-1])
    for name, config in configs.items():
        planned = plan(config)
        settings = {ranks: replace(planned.settings, tensor=ranks) for ranks in RANKS}
        ours = {str(ranks): elements(planned.facts, each, 0) for ranks, each in settings.items()}
        assert (name, ours) == (name, counted[name])


def test_each_language_model_without_a_class_of_its_own_is_counted_here() -> None:
    assert {text for text, _ in TOWERS.values()} | {"qwen2_vl", "qwen2_5_vl"} >= WITHIN_OTHERS


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl"])
def test_an_older_file_has_the_language_model_beside_the_tower(model_type: str) -> None:
    text = LLAMA_8B | {"use_sliding_window": False}
    vision = {"hidden_size": 4096, "out_hidden_size": 4096}
    flat = model_facts(text | {"model_type": model_type, "vision_config": vision})
    nested = {"model_type": model_type, "text_config": text | {"model_type": f"{model_type}_text"}}
    assert flat.architecture_known
    assert parameters(flat) == parameters(model_facts(nested | {"vision_config": vision}))


def _whole(**vision: Any) -> Config:
    text = LLAMA_8B | {"model_type": "qwen3_vl_text"}
    return {"model_type": "qwen3_vl", "text_config": text, "vision_config": {"out_hidden_size": 4096, **vision}}


def test_ranks_share_the_linear_layers_of_a_tower() -> None:
    facts = model_facts(_whole())
    assert facts.tower is not None
    one, two = plan(_whole()), plan(_whole(), parallelism={"tensor": 2})
    text = (
        plan(LLAMA_8B | {"model_type": "qwen3_vl_text"}),
        plan(LLAMA_8B | {"model_type": "qwen3_vl_text"}, parallelism={"tensor": 2}),
    )
    towers = [
        known(a.stage.weights.value) - known(b.stage.weights.value) for a, b in zip((one, two), text, strict=True)
    ]
    assert towers == pytest.approx([2 * facts.tower.elements(1), 2 * facts.tower.elements(2)], rel=0.01)
    assert one.tokens.value is not None
    assert f"{2 * facts.tower.elements(1) / 2**20:.0f} MiB of it a vision tower" in one.stage.weights.note


@pytest.mark.parametrize("vision", [{"depth": "27"}, {"patch_size": [14, 14]}, {"deepstack_visual_indexes": [0] * 65}])
def test_a_tower_with_members_that_do_not_fit_is_unknown(vision: Config) -> None:
    made = plan(_whole(**vision))
    assert made.facts.tower is None
    assert made.stage.weights.value is None
    assert made.stage.kv_bytes_per_token.value == 131072


def test_a_tower_of_another_class_is_unknown() -> None:
    facts = model_facts(_whole() | {"model_type": "some_vl"})
    assert facts.tower is None
    assert not facts.architecture_known
