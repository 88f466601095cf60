"""Facts of a model that are known without its files: from the spec, or from the status."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from pdinference.api.bounds import broken_bound
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.status import CheckpointStatus
from pdinference.memory.model.config import (
    CONFIG_KEYS,
    NESTED,
    PRESENCE_KEYS,
    QUANTIZATION,
    Config,
    LanguageModel,
    StrictModel,
    checked,
)
from pdinference.memory.model.quantization_config import QuantizationConfig
from pdinference.memory.model.tower import AUDIO, VISION, kept_tower
from pdinference.memory.weights.checkpoint import Checkpoint, KnownWeights, StatedWeights, StoredFiles

_UNFIT: dict[str, Any] = {}
"""In place of a member that does not fit: no member may be an empty object, so that it is not read later either."""


def known_facts(spec: Spec, status_model: Mapping[str, Any] | None) -> tuple[Config | None, KnownWeights | None]:
    """The model's config and the size of its checkpoint, as far as they are known.

    Args:
        spec: The spec; `spec.model.architecture` takes precedence.
        status_model: `status.model` as JSON data; counts only when it is about the source that the spec names now.

    Returns:
        The config, None when nothing is known; the size of the weights, None when it has to be computed.
    """
    if (stated := spec.model.architecture) is not None:
        return stated.config, StatedWeights(stated.weights_bytes) if stated.weights_bytes else None
    facts = facts_in(status_model)
    if not isinstance(config := facts.get("config"), Mapping) or facts.get("source") != spec.model.source.identity():
        return None, None
    return config or None, _checkpoint(facts.get("checkpoint"))


def facts_in(status_model: object) -> Mapping[str, Any]:
    """The model in a status, which is untrusted."""
    facts = status_model.get("facts") if isinstance(status_model, Mapping) else None
    return facts if isinstance(facts, Mapping) and broken_bound(facts) is None else {}


def compact_config(config: Config) -> dict[str, Any]:
    """Those members of a config.json that `model_facts` reads, so that they fit into a status."""
    kept = _compact(config)
    nested = ((key, config[key]) for key in NESTED if config.get(key))
    return kept | {key: _compact(value) if isinstance(value, Mapping) else True for key, value in nested}


def _compact(config: Config) -> dict[str, Any]:
    kept = _fitting(LanguageModel, config)
    if config.get("sliding_window", ...) is None:
        kept["sliding_window"] = 0  # no window; a status cannot contain null
    kept |= {key: True for key in PRESENCE_KEYS - CONFIG_KEYS if config.get(key)}
    kept |= {name: kept_tower(config[name]) for name in (VISION, AUDIO) if config.get(name)}
    if quantization := config.get(QUANTIZATION):
        kept[QUANTIZATION] = _compact_quantization(quantization)
    return kept


def _compact_quantization(config: object) -> dict[str, Any] | Literal[True]:
    if not isinstance(config, Mapping):
        return True  # which does not fit either
    return _fitting(QuantizationConfig, config) or {"quant_method": "unnamed"}


def _fitting(model: type[StrictModel], config: Config) -> dict[str, Any]:
    """The valid members, and a mark for invalid ones."""
    found = checked(model, config)
    read = model.model_validate(found.values).model_dump(by_alias=True, exclude_none=True)
    return read | dict.fromkeys(found.unfit, _UNFIT)


def _checkpoint(found: object) -> Checkpoint | StoredFiles | None:
    """The size of a checkpoint; None if it is absent or does not match the schema of the status."""
    try:
        status = CheckpointStatus.model_validate(found, extra="ignore") if found else CheckpointStatus()
    except ValidationError:
        return None
    if status.files and status.file_bytes:
        return StoredFiles(status.suffix, status.files, status.file_bytes)
    sizes = Checkpoint(status.elements, status.scale_elements, status.scale_bytes, status.other_bytes)
    return sizes if sizes != Checkpoint() else None
