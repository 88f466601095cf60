"""What is known of the model, or why not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.planning.memory import Checkpoint, ModelFacts, UnusableConfigError, known_facts, model_facts
from pdinference.planning.memory.model_facts import CONFIG_KEYS

_MOST = {"num_hidden_layers": 512, "n_layer": 512, "n_layers": 512}
_MOST_OF_ANYTHING = 2**31
_MOST_EXPERTS = 65536
"""In all layers together. Far beyond any model, and few enough to answer while the API server waits."""

CONFUSED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a config with anything in any place may lead to."""


@dataclass(frozen=True)
class Facts:
    """The model's shape.

    Attributes:
        shape: None when nothing is known.
        config: Where it comes from.
        checkpoint: The size of its files, when known.
        problems: What is wrong with what the spec says of the model.
    """

    shape: ModelFacts | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    problems: tuple[Problem, ...] = ()


def adapters_of(spec: Spec, status_model: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """What the status knows of adapters, by their path; of another model's run it knows nothing."""
    facts = (status_model or {}).get("facts") or {}
    if facts.get("source") != spec.model.source.identity():
        return {}
    return {found.get("path", ""): found for found in facts.get("adapters") or ()}


def facts_of(spec: Spec, status_model: Mapping[str, Any] | None) -> Facts:
    """From the spec, else from the status. What only the status has wrong is no user's fault, and counts as unknown."""
    config, checkpoint = known_facts(spec, status_model)
    if config is None:
        return Facts()
    try:
        return Facts(_shape(config), config, checkpoint)
    except UnusableConfigError as error:
        stated = spec.model.architecture is not None
        return Facts(problems=(Problem("spec.model.architecture.config", str(error)),) if stated else ())


def _shape(config: Mapping[str, Any]) -> ModelFacts:
    """The model's shape.

    Raises:
        UnusableConfigError: Something in the config is no number, or no sensible one.
    """
    for name, value in _sizes(config):
        if value > _MOST.get(name, _MOST_OF_ANYTHING):
            raise UnusableConfigError(f"{name} is {value}, which no model has.")
    try:
        facts = model_facts(config)
    except UnusableConfigError:
        raise
    except CONFUSED as error:
        raise UnusableConfigError(f"This is no config.json that the plan can read: {error}.") from error
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab"):
        value = getattr(facts, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnusableConfigError(f"It makes {name} {value!r}, which has to be a positive integer.")
    if facts.moe is not None and facts.moe.experts * facts.layers > _MOST_EXPERTS:
        raise UnusableConfigError(
            f"{facts.moe.experts} experts in each of {facts.layers} layers: no model has so many."
        )
    if len(facts.windows) != facts.layers:
        raise UnusableConfigError(f"layer_types has {len(facts.windows)} entries for {facts.layers} layers.")
    return facts


def _sizes(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _sizes(value)
        elif isinstance(value, int) and name in CONFIG_KEYS:
            yield name, value
