"""What is known of the model, or why not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.status import KnownAdapter
from pdinference.api.validation import Problem
from pdinference.planning.memory import (
    KnownWeights,
    ModelFacts,
    UnusableConfigError,
    facts_in,
    known_facts,
    model_facts,
)

_MOST_ADAPTERS = 64


@dataclass(frozen=True)
class Facts:
    """The model's shape.

    Attributes:
        shape: None when nothing is known.
        checkpoint: What is known of the size of its weights.
        problems: What is wrong with what the spec says of the model.
    """

    shape: ModelFacts | None = None
    checkpoint: KnownWeights | None = None
    problems: tuple[Problem, ...] = ()


def adapters_of(spec: Spec, status_model: Mapping[str, Any] | None) -> dict[str, KnownAdapter]:
    """What the status knows of adapters, by their path; of another model's run it knows nothing."""
    facts = facts_in(status_model)
    listed = facts.get("adapters")
    if facts.get("source") != spec.model.source.identity() or not isinstance(listed, list):
        return {}
    return {adapter.path: adapter for adapter in map(_adapter, listed[:_MOST_ADAPTERS]) if adapter is not None}


def facts_of(spec: Spec, status_model: Mapping[str, Any] | None) -> Facts:
    """From the spec, else from the status. What only the status has wrong is no user's fault, and counts as unknown."""
    config, checkpoint = known_facts(spec, status_model)
    if config is None:
        return Facts()
    try:
        return Facts(model_facts(config), checkpoint)
    except UnusableConfigError as error:
        stated = spec.model.architecture is not None
        return Facts(problems=(Problem("spec.model.architecture.config", str(error)),) if stated else ())


def _adapter(found: object) -> KnownAdapter | None:
    try:
        return KnownAdapter.model_validate(found)
    except ValidationError:
        return None
