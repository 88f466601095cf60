"""Models of 2023: classes that vLLM removed, an option for their tokenizers, quantisation in a file of its own."""

from collections.abc import Iterator

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.model_shape import FAMILIES
from pdinference.checks.options import arguments_of, is_listed_version, listed
from pdinference.planning.memory import ModelFacts

_OTHER_CLASS = ("hf-overrides", "model-impl")
"""Options that can have vLLM load the model with another class."""
QUANTIZATION_FILES = {"awq": "quant_config.json or quantize_config.json", "gptq": "quantize_config.json"}
"""Where vLLM looks when config.json has no quantization_config (`get_config_filenames` in
vllm/model_executor/layers/quantization/auto_awq.py and auto_gptq.py)."""
_TOKENIZER_MODE = "tokenizer-mode"


def older_model_warnings(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """What vLLM may not load, which depends on an image or a file that is not known here."""
    if facts is not None:
        yield from _removed_class(spec, facts)
        yield from _quantization_file(spec, facts)


def _removed_class(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    """A class that vLLM no longer has; a warning, as an image of the user's own may have it as a plugin."""
    if any(option in arguments for _, arguments in arguments_of(spec) for option in _OTHER_CLASS):
        return
    if facts.last_version and is_listed_version(spec.engine.image):
        yield Problem(
            "spec.engine.image",
            f"vLLM {listed()[0]} has no class for models of type {facts.model_type}: pods fail at start. "
            f"Use an image with vLLM {facts.last_version}, the last release with one, or convert the weights "
            "(docs/older-models.md).",
        )


def _quantization_file(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    """AWQ or GPTQ whose config.json does not say so: it depends on a file that is not read here."""
    wanted = spec.model.quantization or ""
    files = QUANTIZATION_FILES.get(FAMILIES.get(wanted, wanted))
    if facts.quantization is None and not facts.unfit and files is not None:
        yield Problem(
            "spec.model.quantization",
            f"{wanted}: the model's config.json has no quantization_config. vLLM then needs {files} beside it, and "
            "fails at start without.",
        )


def tokenizer_problems(spec: Spec) -> Iterator[Problem]:
    """`tokenizer-mode: slow`, which vLLM's parser takes and its start refuses (vllm/tokenizers/registry.py)."""
    if not is_listed_version(spec.engine.image):
        return
    for field, arguments in arguments_of(spec):
        if arguments.get(_TOKENIZER_MODE) == "slow":
            yield Problem(
                f"{field}.{_TOKENIZER_MODE}",
                f"vLLM {listed()[0]} has no mode slow. Leave the option out: vLLM takes the tokenizer in Python where "
                "the repository has no other.",
            )
