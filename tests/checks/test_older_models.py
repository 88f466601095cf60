"""Models of 2023 whose class vLLM removed."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.checks.examine import Examination, examine
from pdinference.manifests import RenderSettings

Make = Callable[..., dict[str, Any]]

BAICHUAN = {
    "model_type": "baichuan",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 64000,
    "max_position_embeddings": 4096,
}
OFFICIAL = "docker.io/vllm/vllm-openai"


def examined(document: dict[str, Any]) -> Examination:
    return examine(document, RenderSettings())


def of_baichuan(document: Make, **engine: Any) -> Examination:
    model = {"source": {"path": "/models/a"}, "architecture": {"config": BAICHUAN}}
    products = {"accelerator": {"products": ["NVIDIA-A100-SXM4-80GB"]}}
    return examined(document(model=model, engine=engine, parameter=products))


def test_a_class_that_vllm_removed_is_reported_with_its_last_release(document: Make) -> None:
    found = of_baichuan(document, image=f"{OFFICIAL}:v0.32.0")
    assert found.problems == (), "an image of somebody's own may have the class as a plugin"
    (warning,) = found.warnings
    assert warning.field == "spec.engine.image"
    assert "vLLM 0.32.0 has no class for models of type baichuan" in warning.message
    assert "vLLM 0.23.0" in warning.message


@pytest.mark.parametrize(
    "engine",
    [
        {"image": f"{OFFICIAL}:v0.23.0"},
        {"args": {"hf-overrides": {"architectures": ["LlamaForCausalLM"]}}},
        {"args": {"model-impl": "transformers"}},
    ],
    ids=["the last release", "another class", "transformers"],
)
def test_whoever_has_a_class_is_not_warned(document: Make, engine: dict[str, Any]) -> None:
    assert of_baichuan(document, **engine).warnings == ()


def test_slow_tokenizers_have_no_mode_of_their_own_any_more(document: Make) -> None:
    args = {"tokenizer-mode": "slow"}
    (problem,) = examined(document(decode={"args": args})).problems
    assert problem.field == "spec.decode.args.tokenizer-mode"
    assert "Leave the option out" in problem.message
    assert examined(document(engine={"image": f"{OFFICIAL}:v0.23.0", "args": args})).problems == ()


@pytest.mark.vllm
def test_vllm_has_no_mode_slow() -> None:
    from vllm.tokenizers.registry import TokenizerRegistry  # noqa: PLC0415

    with pytest.raises(ValueError, match="No tokenizer registered for tokenizer_mode='slow'"):
        TokenizerRegistry.load_tokenizer_cls("slow")
