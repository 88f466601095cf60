"""Models of 2023: classes that vLLM removed, an option for their tokenizers, quantisation in a file of its own."""

from collections.abc import Iterator

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.options import is_listed_version, listed
from pdinference.planning.memory import ModelFacts

_OTHER_CLASS = ("hf-overrides", "model-impl")
"""Options that can have vLLM load the model with another class."""
QUANTIZATION_FILES = {"awq": "quant_config.json or quantize_config.json", "gptq": "quantize_config.json"}
"""Where vLLM looks when config.json has no quantization_config (`get_config_filenames` in
vllm/model_executor/layers/quantization/auto_awq.py and auto_gptq.py)."""
_TOKENIZER_MODE = "tokenizer-mode"


def older_model_warnings(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """A model whose class vLLM no longer has; a warning, as an image of the user's own may have it as a plugin."""
    parts = (spec.engine, *(spec.of(role) for role in ENGINE_ROLES))
    if facts is None or any(option in part.args for part in parts for option in _OTHER_CLASS):
        return
    if facts.last_version and is_listed_version(spec.engine.image):
        yield Problem(
            "spec.engine.image",
            f"vLLM {listed()[0]} has no class for models of type {facts.model_type}: pods fail at start. "
            f"Use an image with vLLM {facts.last_version}, the last release with one, or convert the weights "
            "(docs/older-models.md).",
        )


def quantization_file_warnings(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """AWQ or GPTQ whose config.json does not say so: it depends on a file that is not read here."""
    wanted = (spec.model.quantization or "").removesuffix("_marlin")
    if facts is None or facts.quantization is not None or facts.unfit or wanted not in QUANTIZATION_FILES:
        return
    yield Problem(
        "spec.model.quantization",
        f"{spec.model.quantization}: the model's config.json has no quantization_config. vLLM then needs "
        f"{QUANTIZATION_FILES[wanted]} beside it, and fails at start without.",
    )


def tokenizer_problems(spec: Spec) -> Iterator[Problem]:
    """`tokenizer-mode: slow`, which vLLM's parser takes and its start refuses (vllm/tokenizers/registry.py)."""
    if not is_listed_version(spec.engine.image):
        return
    for name, part in (("engine", spec.engine), *((role, spec.of(role)) for role in ENGINE_ROLES)):
        if part.args.get(_TOKENIZER_MODE) == "slow":
            yield Problem(
                f"spec.{name}.args.{_TOKENIZER_MODE}",
                f"vLLM {listed()[0]} has no mode slow. Leave the option out: vLLM takes the tokenizer in Python where "
                "the repository has no other.",
            )
