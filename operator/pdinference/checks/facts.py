"""Facts about the model, from the spec or the status.

Tests: tests/checks/test_examine.py, tests/admission/test_webhook.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.status import KnownAdapter
from pdinference.api.validation import Problem
from pdinference.memory import (
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
    """Facts about a model.

    Attributes:
        shape: Shape of the model; None if unknown.
        checkpoint: Size of its weights; None if unknown.
        problems: Problems of spec.model.architecture.
    """

    shape: ModelFacts | None = None
    checkpoint: KnownWeights | None = None
    problems: tuple[Problem, ...] = ()


def adapters_of(spec: Spec, status_model: Mapping[str, Any] | None) -> dict[str, KnownAdapter]:
    """Facts about adapters from the status, by path; empty if they belong to another source."""
    facts = facts_in(status_model)
    listed = facts.get("adapters")
    if facts.get("source") != spec.model.source.identity() or not isinstance(listed, list):
        return {}
    return {adapter.path: adapter for adapter in map(_adapter, listed[:_MOST_ADAPTERS]) if adapter is not None}


def facts_of(spec: Spec, status_model: Mapping[str, Any] | None) -> Facts:
    """Facts from the spec, or else from the status. An invalid config in the status counts as unknown."""
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
        return KnownAdapter.model_validate(found, extra="ignore")
    except ValidationError:
        return None
