"""Estimates of towers compared with the classes of transformers, in the sizes that these have by default."""

import warnings
from dataclasses import replace
from typing import Any

import pytest

from pdinference.memory import model_facts
from pdinference.memory.model.tower import AUDIO, VISION
from pdinference.memory.model.towers import towers_of
from pdinference.memory.model.usual_towers import TOO_SMALL
from tests.memory.configs import LLAMA_8B, Config
from tests.memory.plans import known, plan

_CLOSE = 0.15
CLOSE = ("aria", "exaone4_5", "glmasr", "got_ocr2", "internvl", "lfm2_vl", "lighton_ocr")
LARGER = ("cohere2_vision", "ernie4_5_vl_moe")
"""Types with projectors that are wider than usual."""
_LANGUAGE = ("language_model", "lm_head", "embed_tokens", "model.layers")


def _class(model_type: str) -> tuple[int, Config]:
    """Parameters beside those of the language model, and the config."""
    import torch  # noqa: PLC0415 - only where vLLM is installed
    from transformers import AutoConfig, AutoModelForMultimodalLM  # noqa: PLC0415

    config: Any = AutoConfig.for_model(model_type)
    config.get_text_config().num_hidden_layers = 1
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = AutoModelForMultimodalLM.from_config(config)
    named = ((name, each.numel()) for name, each in model.named_parameters())
    return sum(size for name, size in named if not any(part in name for part in _LANGUAGE)), config.to_dict()


@pytest.mark.vllm
@pytest.mark.parametrize("model_type", [*CLOSE, *LARGER])
def test_an_estimate_is_as_close_as_it_says(model_type: str) -> None:
    count, config = _class(model_type)
    tower = towers_of(model_type, config, config["text_config"]["hidden_size"], None)
    assert tower is not None
    assert tower.estimated
    low, high = (-_CLOSE, _CLOSE) if model_type in CLOSE else (-TOO_SMALL, 0)
    assert low <= tower.elements(1) / count - 1 <= high


CLIP: Config = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "projection_dim": 768,
}  # fmt: skip
WHISPER: Config = {
    "model_type": "qwen2_audio_encoder", "d_model": 1280, "encoder_layers": 32, "encoder_ffn_dim": 5120,
    "num_mel_bins": 128, "max_source_positions": 1500,
}  # fmt: skip
CONFORMER: Config = {
    "model_type": "gemma4_audio", "hidden_size": 1024, "num_hidden_layers": 12, "conv_kernel_size": 5,
}  # fmt: skip
TEXT = LLAMA_8B | {"model_type": "llama"}


@pytest.mark.parametrize(
    ("towers", "millions"),
    [
        ({VISION: CLIP}, 325),
        ({VISION: {"width": 1152, "layers": 27, "mlp_ratio": 3.7362, "image_size": 384, "patch_size": 14}}, 433),
        ({VISION: CLIP | {"image_size": [336, 336], "patch_size": [14, 14]}}, 325),
        ({AUDIO: WHISPER}, 660),
        ({AUDIO: CONFORMER}, 330),
        ({VISION: CLIP, AUDIO: WHISPER}, 985),
    ],
)
def test_a_model_with_a_tower_of_another_class_is_counted(towers: Config, millions: float) -> None:
    config = {"model_type": "some_vl", "text_config": TEXT, **towers}
    made, text = plan(config), plan(TEXT)
    assert made.facts.architecture_known
    added = known(made.stage.weights.value) - known(text.stage.weights.value)
    assert added == pytest.approx(2e6 * millions, rel=0.1)
    kinds = [name.removesuffix("_config") for name in (VISION, AUDIO) if name in towers]
    named = {"vision": "a vision tower", "audio": "an audio tower"}.get("+".join(kinds), "vision and audio towers")
    assert f"{named}, estimated from {', '.join(towers)}" in made.stage.weights.note
    assert "Without what images or audio take" in made.stage.activations.note


def test_the_lower_end_has_a_larger_tower() -> None:
    config = {"model_type": "some_vl", "text_config": TEXT, VISION: CLIP}
    whole, text = plan(config), plan(config, args={"language-model-only": True})
    spread = [known(made.blocks.value) - known(made.fewest_blocks.value) for made in (whole, text)]
    tower = model_facts(config).tower
    assert tower is not None
    assert spread[0] - spread[1] == pytest.approx(TOO_SMALL * 2 * tower.elements(1) / (131072 * 128), abs=1)


@pytest.mark.parametrize(
    "towers",
    [
        {VISION: {"hidden_size": 2048, "architecture": "mobilenetv5_300m_enc"}},
        {VISION: CLIP, AUDIO: {"other": 1}},
        {VISION: CLIP | {"hidden_size": "1024"}},
        {VISION: CLIP | {"patch_size": [0]}},
        {VISION: CLIP | {"mlp_ratio": float("inf"), "intermediate_size": None}},
        {AUDIO: True},
    ],
)
def test_a_tower_without_a_usual_size_is_unknown(towers: Config) -> None:
    config = {"model_type": "some_vl", "text_config": TEXT, **towers}
    made = plan(config)
    assert made.facts.tower is None
    assert made.stage.weights.value is None


def test_ranks_share_layers_of_vision_and_each_has_those_of_audio() -> None:
    for towers, shared in (({VISION: CLIP}, True), ({AUDIO: WHISPER}, False)):
        tower = model_facts({"model_type": "some_vl", "text_config": TEXT, **towers}).tower
        assert tower is not None
        assert (tower.elements(4) < tower.elements(1) / 3) == shared
        assert replace(tower, sharded=0).elements(4) == tower.whole
