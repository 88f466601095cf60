"""Checks for models of 2023: removed model classes, slow tokenizers, and separate quantization files."""

from collections.abc import Iterator

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.model_shape import FAMILIES
from pdinference.checks.options import arguments_of, version_of
from pdinference.memory import ModelFacts

_OTHER_CLASS = ("hf-overrides", "model-impl")
"""Options that can have vLLM load the model with another class."""
QUANTIZATION_FILES = {"awq": "quant_config.json or quantize_config.json", "gptq": "quantize_config.json"}
"""Files that vLLM reads if config.json has no quantization_config (`get_config_filenames` in
vllm/model_executor/layers/quantization/auto_awq.py and auto_gptq.py)."""
_TOKENIZER_MODE = "tokenizer-mode"


def older_model_warnings(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """Warnings about models that vLLM may not load, depending on the image or on a file that is not read here."""
    if facts is not None:
        yield from _removed_class(spec, facts)
        yield from _quantization_file(spec, facts)


def _removed_class(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    """A warning about a class that vLLM has removed. A custom image may add it as a plugin."""
    if any(option in arguments for _, arguments in arguments_of(spec) for option in _OTHER_CLASS):
        return
    if facts.last_version and (version := version_of(spec.engine)):
        yield Problem(
            "spec.engine.image",
            f"vLLM {version} does not support models of type {facts.model_type}: pods fail at start. "
            f"Use an image with vLLM {facts.last_version}, the last release that supports them, or convert the weights "
            "(docs/older-models.md).",
        )


def _quantization_file(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    """A warning about AWQ or GPTQ without a quantization_config in config.json."""
    wanted = spec.model.quantization or ""
    files = QUANTIZATION_FILES.get(FAMILIES.get(wanted, wanted))
    if facts.quantization is None and not facts.unfit and files is not None:
        yield Problem(
            "spec.model.quantization",
            f"The model's config.json has no quantization_config. For {wanted}, vLLM then needs {files} in the same "
            "folder, and fails at start otherwise.",
        )


def tokenizer_problems(spec: Spec) -> Iterator[Problem]:
    """`tokenizer-mode: slow`, which vLLM parses but rejects at start (vllm/tokenizers/registry.py)."""
    version = version_of(spec.engine)
    if version is None:
        return
    for field, arguments in arguments_of(spec):
        if arguments.get(_TOKENIZER_MODE) == "slow":
            yield Problem(
                f"{field}.{_TOKENIZER_MODE}",
                f"vLLM {version} does not support the mode slow. Remove the option: vLLM uses the Python tokenizer "
                "if the repository has no other.",
            )
