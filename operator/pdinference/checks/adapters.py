"""LoRA adapters whose adapter_config.json was read: what vLLM would refuse when it loads them."""

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.model import LoRA, LoRAAdapter
from pdinference.api.v1alpha1.status import KnownAdapter
from pdinference.api.validation import Problem

Known = Mapping[str, KnownAdapter]
"""By path; adapters that could not be read are not in it, and nothing is said of them."""

_NAMED = 8
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_RANKS: tuple[int, ...] = get_args(LoRA.model_fields["max_rank"].annotation)
_LLAMA_LIKE = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""`model_type` of models whose layers all have these names."""
_LLAMA_MODULES = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"}
) | {"embed_tokens", "lm_head"}


def adapter_problems(spec: Spec, known: Known, model_type: str) -> Iterator[Problem]:
    """Adapters that do not fit the engine or the model.

    Args:
        spec: What to serve.
        known: What was read of adapters.
        model_type: The model's; empty where it is not known.
    """
    for where, adapter, found in _found(spec, known):
        most, rank = spec.model.lora.max_rank if spec.model.lora else 0, found.rank
        if rank > most:
            said = f"{adapter.name} has rank {rank}, and spec.model.lora.maxRank is {most}."
            yield Problem(where, f"{said} {_remedy(rank)}")
        if found.unsupported:
            said = f"{adapter.name} was trained with {_listed(found.unsupported)}, which vLLM cannot load."
            yield Problem(where, f"{said} Leave it out.")
        if unknown := _unknown_modules(found, model_type):
            yield Problem(
                where,
                f"{adapter.name} changes {_listed(unknown)}, which a model of type {model_type} does not "
                f"have: it belongs to another model{_named(found)}. Leave it out, or serve that model.",
            )


def adapter_warnings(spec: Spec, known: Known) -> Iterator[Problem]:
    """Adapters that say they were trained on another model; a copy or a quantised one may be right."""
    hub = spec.model.source.hub
    if hub is None:
        return
    for where, adapter, found in _found(spec, known):
        base = found.base
        if _REPOSITORY.fullmatch(base) and not _related(base, hub.repository):
            said = f"{adapter.name} was trained on {base}, and the model is {hub.repository}"
            yield Problem(where, f"{said}: is it the right one?")


def _found(spec: Spec, known: Known) -> Iterator[tuple[str, LoRAAdapter, KnownAdapter]]:
    for index, adapter in enumerate(spec.model.lora.adapters if spec.model.lora else ()):
        if adapter.path in known:
            yield f"spec.model.lora.adapters[{index}]", adapter, known[adapter.path]


def _remedy(rank: int) -> str:
    enough = next((choice for choice in _RANKS if choice >= rank), None)
    return f"Set maxRank: {enough}." if enough else f"vLLM loads ranks of up to {_RANKS[-1]}. Leave it out."


def _unknown_modules(found: KnownAdapter, model_type: str) -> list[str]:
    if model_type not in _LLAMA_LIKE:
        return []
    return sorted({module.rsplit(".", 1)[-1] for module in found.modules} - _LLAMA_MODULES)


def _named(found: KnownAdapter) -> str:
    return f" ({found.base})" if found.base else ""


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _related(one: str, other: str) -> bool:
    """Whether one repository's name contains the other's, as those of quantised copies and of tuned models do."""
    first, second = (name.rsplit("/", 1)[-1].lower() for name in (one, other))
    return first in second or second in first
