"""Converts typed fields of the resource to options of vLLM.

Tests: tests/engine/test_vllm.py
"""

from decimal import Decimal
from typing import Any

from pdinference.api.names import Role
from pdinference.api.quantities import quantity
from pdinference.api.v1alpha1 import Spec, defaults
from pdinference.api.v1alpha1.engine import EngineOptions, KVCache
from pdinference.engine.command import EnvironmentVariable, variable

_SAME_NAME = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enforce_eager",
    "seed",
)
_GIB = Decimal(2**30)


def engine_options(options: EngineOptions) -> dict[str, Any]:
    """vLLM's options for the fields that are set."""
    flags = {name.replace("_", "-"): getattr(options, name) for name in _SAME_NAME}
    if options.cpu_offload is not None:
        flags["cpu-offload-gb"] = gib(options.cpu_offload)
    return {name: value for name, value in flags.items() if value is not None}


def gib(size: str) -> float:
    """A valid quantity in GiB, which vLLM calls GB."""
    return float((quantity(size) or 0) / _GIB)


def kv_cache_options(kv_cache: KVCache) -> dict[str, Any]:
    """vLLM's options for dtype and block size of the KV cache."""
    flags = {"kv-cache-dtype": None if kv_cache.dtype == "auto" else kv_cache.dtype, "block-size": kv_cache.block_size}
    return {name: value for name, value in flags.items() if value is not None}


def default_options(spec: Spec, role: Role) -> dict[str, Any]:
    """Options that the operator sets by default, because vLLM's defaults are not suitable for P/D."""
    flags = {
        "block-size": defaults.block_size(spec),
        "max-num-batched-tokens": defaults.max_num_batched_tokens(spec, role),
        defaults.API_SERVERS: defaults.api_servers(spec, role),
        "enable-prompt-tokens-details": True if spec.transfers_kv and spec.router.is_adaptive else None,
    }
    return {name: value for name, value in flags.items() if value is not None}


def log_environment(options: EngineOptions) -> list[EnvironmentVariable]:
    """The variable with the log level, which vLLM reads from the environment."""
    return [] if options.log_level is None else [variable("VLLM_LOGGING_LEVEL", options.log_level)]
