"""LoRA adapters that vLLM cannot load, according to their adapter_config.json.

Tests: tests/checks/test_examine.py
"""

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from pdinference.api.plain_text import first_of
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.model import LoRA, LoRAAdapter
from pdinference.api.v1alpha1.status import KnownAdapter
from pdinference.api.validation import Problem

Known = Mapping[str, KnownAdapter]
"""Facts by path. Adapters that could not be read are absent and not checked."""

_NAMED = 8
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_RANKS: tuple[int, ...] = get_args(LoRA.model_fields["max_rank"].annotation)
_LLAMA_LIKE = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""`model_type` of models whose layers have only the names in `_LLAMA_MODULES`."""
_LLAMA_MODULES = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"}
) | {"embed_tokens", "lm_head"}


def adapter_problems(spec: Spec, known: Known, model_type: str) -> Iterator[Problem]:
    """Adapters that do not fit the engine or the model.

    Args:
        spec: The spec.
        known: Facts about the adapters.
        model_type: `model_type` of the model; empty if unknown.
    """
    for where, adapter, found in _found(spec, known):
        most, rank = spec.model.lora.max_rank if spec.model.lora else 0, found.rank
        if rank > most:
            excess = f"Adapter {adapter.name} has rank {rank}, but spec.model.lora.maxRank is {most}."
            yield Problem(where, f"{excess} {_remedy(rank)}")
        if found.unsupported:
            unsupported = (
                f"Adapter {adapter.name} uses {first_of(found.unsupported, _NAMED)}, which vLLM does not support."
            )
            yield Problem(where, f"{unsupported} Remove the adapter.")
        if unknown := _unknown_modules(found, model_type):
            yield Problem(
                where,
                f"Adapter {adapter.name} targets {first_of(unknown, _NAMED)}, but models of type {model_type} do not "
                f"have these modules: the adapter belongs to another model{_named(found)}. Remove the adapter.",
            )


def adapter_warnings(spec: Spec, known: Known) -> Iterator[Problem]:
    """Adapters whose base model differs from the served model. A copy or a quantized model may still be right."""
    hub = spec.model.source.hub
    if hub is None:
        return
    for where, adapter, found in _found(spec, known):
        base = found.base
        if _REPOSITORY.fullmatch(base) and not _related(base, hub.repository):
            yield Problem(
                where,
                f"The base model of adapter {adapter.name} is {base}, but the model is {hub.repository}. Check the "
                "adapter.",
            )


def _found(spec: Spec, known: Known) -> Iterator[tuple[str, LoRAAdapter, KnownAdapter]]:
    for index, adapter in enumerate(spec.model.lora.adapters if spec.model.lora else ()):
        if adapter.path in known:
            yield f"spec.model.lora.adapters[{index}]", adapter, known[adapter.path]


def _remedy(rank: int) -> str:
    enough = next((choice for choice in _RANKS if choice >= rank), None)
    return f"Set maxRank: {enough}." if enough else f"vLLM's maximum rank is {_RANKS[-1]}. Remove the adapter."


def _unknown_modules(found: KnownAdapter, model_type: str) -> list[str]:
    if model_type not in _LLAMA_LIKE:
        return []
    return sorted({module.rsplit(".", 1)[-1] for module in found.modules} - _LLAMA_MODULES)


def _named(found: KnownAdapter) -> str:
    return f" ({found.base})" if found.base else ""


def _related(one: str, other: str) -> bool:
    """Whether one repository name contains the other, as with quantized copies and fine-tuned models."""
    first, second = (name.rsplit("/", 1)[-1].lower() for name in (one, other))
    return first in second or second in first
