"""LMCache: P stores KV cache in a cache server, and D loads it by the prompt."""

from collections.abc import Mapping
from typing import Any

from pdinference.api.engines import Slot
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.engine.command import EnvironmentVariable, variable
from pdinference.engine.connectors.connector import Connector
from pdinference.engine.connectors.handover import PromptHandover

_URL = "LMCACHE_REMOTE_URL"


class LMCache(Connector):
    """vLLM's LMCacheConnectorV1."""

    vllm_names = ("LMCacheConnectorV1",)
    handover = PromptHandover()
    tried = (
        "the options are checked against vLLM's parser and registry; no transfer was made. Its wheel (0.5.6) is for "
        "CUDA 13, wants older NumPy and OpenTelemetry than vLLM 0.32's build for CPU, and refuses vLLM on CPU "
        '("No supported cpu connector found", `lmcache/v1/gpu_connector/__init__.py`)'
    )

    def environment(self, transfer: Transfer, _slot: Slot | None = None) -> list[EnvironmentVariable]:
        """The server, and settings that make P and D use the same keys for the same prompt."""
        return [
            variable(_URL, transfer.lm_cache.remote_url if transfer.lm_cache else ""),
            variable("LMCACHE_REMOTE_SERDE", "naive"),
            # The last, incomplete chunk of a prompt must be transferred, too. Otherwise D would compute it.
            variable("LMCACHE_SAVE_UNFULL_CHUNK", "True"),
            # P and D must compute the same hash for the same tokens. Python's hashes differ between processes.
            variable("PYTHONHASHSEED", "0"),
        ]

    def converted(self, environment: Mapping[str, str]) -> Mapping[str, Any] | None:
        """The server; None without one."""
        url = environment.get(_URL)
        return {"lmCache.remoteUrl": url} if url else None
