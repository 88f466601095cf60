"""Whether vLLM can load the weights as `model.load` and `model.source.bucket` say, with what else the spec says.

Tests: tests/checks/test_loading.py
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.source import configures_bucket
from pdinference.api.validation import Problem
from pdinference.checks.options import arguments_of
from pdinference.checks.pair import environments

_OPTION: Final = "load-format"
_EXTRA: Final = "model-loader-extra-config"
_OF_GPUS: Final = frozenset({"fastsafetensors", "instanttensor"})
"""Loaders that read into the memory of a GPU (vllm/model_executor/model_loader/weight_utils.py)."""
_BUCKET: Final = "spec.model.source.bucket"


def loading_problems(spec: Spec) -> Iterator[Problem]:
    """Loaders that cannot work, and settings that are made twice."""
    for field, arguments in arguments_of(spec, spec.engine_roles):
        yield from _twice(spec, field, arguments)
    for role in spec.engine_roles:
        if spec.model.load.format in _OF_GPUS and spec.of(role).accelerator.type == "CPU":
            yield Problem(
                "spec.model.load.format",
                f"{spec.model.load.format} reads weights into GPUs, but spec.{role}.accelerator.type is CPU. Remove "
                "the format.",
            )
    for field, environment in environments(spec, engines_only=True):
        for name in sorted(environment):
            if why := _set_by_fields(spec, name):
                yield Problem(f"{field}.{name}", why)
    limit = spec.model.load.memory_limit
    if limit is not None and (quantity(limit) or 0) < 1:
        yield Problem("spec.model.load.memoryLimit", "Write a number of bytes, for example 8Gi.")


def _set_by_fields(spec: Spec, name: str) -> str:
    """Why a variable of vLLM cannot be set, because a field sets it; empty if it can."""
    load = spec.model.load
    if spec.model.streams and configures_bucket(name):
        return f"Use the fields of {_BUCKET} instead of this variable."
    values = {"RUNAI_STREAMER_CONCURRENCY": load.concurrency, "RUNAI_STREAMER_MEMORY_LIMIT": load.memory_limit}
    return "spec.model.load sets it. Remove the variable." if values.get(name) is not None else ""


def _twice(spec: Spec, field: str, arguments: Mapping[str, Any]) -> Iterator[Problem]:
    chosen = spec.model.load_format
    if _OPTION in arguments and chosen is not None:
        automatic = spec.model.load.format == "auto"
        why = f"vLLM loads from {_BUCKET} with it" if automatic else "spec.model.load.format sets it"
        yield Problem(f"{field}.{_OPTION}", f"The format is {chosen}: {why}. Remove the option.")
    load = spec.model.load
    if _EXTRA in arguments and (load.concurrency is not None or load.memory_limit is not None):
        yield Problem(
            f"{field}.{_EXTRA}", "concurrency and memoryLimit of spec.model.load are set. Remove them, or the option."
        )
