"""What is known of a model without reading its files: from the spec, or from the status."""

from collections.abc import Mapping
from typing import Any

from pdinference.api.v1alpha1 import Spec
from pdinference.planning.memory.checkpoint import Checkpoint
from pdinference.planning.memory.model_facts import CONFIG_KEYS, PRESENCE_KEYS, Config

_NESTED = ("text_config", "llm_config")
_QUANTIZATION = "quantization_config"
_QUANTIZATION_KEYS = frozenset(
    {"quant_method", "quantization_method", "bits", "w_bit", "group_size", "q_group_size", "desc_act"}
    | {"weight_block_size", "load_in_4bit", "_load_in_4bit", "llm_int8_skip_modules", "kv_cache_scheme"}
    | {"config_groups", "modules_to_not_convert", "ignored_layers", "ignore"}
)


def known_facts(spec: Spec, status_model: Mapping[str, Any] | None) -> tuple[Config | None, Checkpoint | None]:
    """The model's config and the size of its checkpoint, as far as they are known.

    Args:
        spec: What to serve; what `spec.model.architecture` says wins.
        status_model: `status.model` as JSON data; counts only when it is about the source that the spec names now.

    Returns:
        The config, None when nothing is known; the checkpoint, None when the weights have to be computed.
    """
    if (stated := spec.model.architecture) is not None:
        return stated.config, Checkpoint(other_bytes=stated.weights_bytes) if stated.weights_bytes else None
    facts = (status_model or {}).get("facts") or {}
    if not facts.get("config") or facts.get("source") != spec.model.source.identity():
        return None, None
    found = facts.get("checkpoint")
    return facts["config"], _checkpoint(found) if found else None


def compact_config(config: Config) -> dict[str, Any]:
    """Those members of a config.json that `model_facts` reads, so that they fit into a status."""
    kept = {key: value for key, value in config.items() if key in CONFIG_KEYS and value is not None}
    if config.get("sliding_window", ...) is None:
        kept["sliding_window"] = 0  # none, whatever the architecture's default; a status cannot hold null
    kept |= {key: True for key in PRESENCE_KEYS if config.get(key)}
    kept |= {key: compact_config(config[key]) for key in _NESTED if isinstance(config.get(key), Mapping)}
    quantization = config.get(_QUANTIZATION)
    if isinstance(quantization, Mapping):
        kept[_QUANTIZATION] = {
            key: value for key, value in quantization.items() if key in _QUANTIZATION_KEYS and value is not None
        }
    return kept


def _checkpoint(found: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        elements=found.get("elements", 0),
        scale_elements=found.get("scaleElements", 0),
        scale_bytes=found.get("scaleBytes", 0),
        other_bytes=found.get("otherBytes", 0),
    )
