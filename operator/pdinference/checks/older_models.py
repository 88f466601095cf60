"""Models of 2023 that vLLM ran once: their classes were removed, and so was the option for their tokenizers."""

from collections.abc import Iterator, Mapping

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.options import is_listed_version, listed
from pdinference.planning.memory import ModelFacts

LAST_RELEASE: Mapping[str, tuple[str, str]] = {
    "aquila": ("AquilaForCausalLM", "0.24.0"),
    "baichuan": ("BaiChuanForCausalLM", "0.23.0"),
    "internlm": ("InternLMForCausalLM", "0.23.0"),
    "mpt": ("MPTForCausalLM", "0.28.0"),
    "qwen": ("QWenLMHeadModel", "0.23.0"),
    "xverse": ("XverseForCausalLM", "0.23.0"),
}
"""By `model_type`: the class, and the last release that has it (`_PREVIOUSLY_SUPPORTED_MODELS` in
vllm/model_executor/models/registry.py)."""
_OTHER_CLASS = ("hf-overrides", "model-impl")
"""Options that can have vLLM load the model with another class."""
_TOKENIZER_MODE = "tokenizer-mode"


def older_model_warnings(spec: Spec, facts: ModelFacts | None) -> Iterator[Problem]:
    """A model whose class vLLM no longer has; a warning, as an image of the user's own may have it as a plugin."""
    parts = (spec.engine, *(spec.of(role) for role in ENGINE_ROLES))
    if facts is None or any(option in part.args for part in parts for option in _OTHER_CLASS):
        return
    removed = LAST_RELEASE.get(facts.model_type)
    if removed is not None and is_listed_version(spec.engine.image):
        class_name, release = removed
        yield Problem(
            "spec.engine.image",
            f"vLLM {listed()[0]} has no class {class_name} for models of type {facts.model_type}: pods fail at start. "
            f"Use an image with vLLM {release}, the last release that has it, or convert the weights "
            "(docs/older-models.md).",
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
