"""Models of 2023 whose class vLLM removed."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.checks.examine import Examination, examine
from pdinference.checks.older_models import QUANTIZATION_FILES
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
    return examined(document(model=model, engine=engine, parameter=products, transfer={"path": "Network"}))


def test_a_class_that_vllm_removed_is_reported_with_its_last_release(document: Make) -> None:
    found = of_baichuan(document, image=f"{OFFICIAL}:v0.32.0")
    assert found.problems == (), "an image of somebody's own may have the class as a plugin"
    (warning,) = found.warnings
    assert warning.field == "spec.engine.image"
    assert "vLLM 0.32.0 does not support models of type baichuan" in warning.message
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
    assert "Remove the option" in problem.message
    assert examined(document(engine={"image": f"{OFFICIAL}:v0.23.0", "args": args})).problems == ()


@pytest.mark.parametrize("stated", [{}, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}])
def test_a_quantisation_that_config_json_lacks_has_a_file_of_its_own(document: Make, stated: dict[str, Any]) -> None:
    llama = BAICHUAN | {"model_type": "llama"} | stated
    source = {"path": "/models/a"}
    made = document(model={"source": source, "quantization": "awq", "architecture": {"config": llama}})
    warned = {warning.field: warning.message for warning in examined(made).warnings}
    assert ("spec.model.quantization" in warned) is not bool(stated)
    assert stated or "quant_config.json or quantize_config.json" in warned["spec.model.quantization"]


@pytest.mark.vllm
def test_vllm_looks_into_these_files_for_the_quantisation() -> None:
    from vllm.model_executor.layers.quantization import get_quantization_config  # noqa: PLC0415

    for method, files in QUANTIZATION_FILES.items():
        assert set(get_quantization_config(method).get_config_filenames()) == set(files.split(" or "))


@pytest.mark.vllm
def test_vllm_has_no_mode_slow() -> None:
    from vllm.tokenizers.registry import TokenizerRegistry  # noqa: PLC0415

    with pytest.raises(ValueError, match="No tokenizer registered for tokenizer_mode='slow'"):
        TokenizerRegistry.load_tokenizer_cls("slow")
