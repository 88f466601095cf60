"""Models of 2023 that vLLM ran once: their classes were removed, and so was the option for their tokenizers."""

from collections.abc import Iterator

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.options import is_listed_version, listed
from pdinference.planning.memory import ModelFacts

_OTHER_CLASS = ("hf-overrides", "model-impl")
"""Options that can have vLLM load the model with another class."""
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
