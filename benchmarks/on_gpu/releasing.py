"""NIXL connectors of vLLM 0.26 that let go of the memory of a peer whose process is gone: an experiment.

vLLM imports this module (`kv_connector_module_path`). Each worker tries the side channels of its peers twice a second.
If one refuses two connections, its engine is removed as vLLM removes one that was idle for an hour, and the mappings of
dead processes are closed (`ucx_mappings`). RELEASE_AFTER are seconds to wait, so that a measurement sees both states.
"""

import os
import socket
import threading
import time
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector, NixlPushConnector
from vllm.logger import init_logger

from benchmarks.on_gpu import ucx_mappings

_PERIOD_SECONDS = 0.5
_REFUSALS = 2
_AFTER_SECONDS = float(os.environ.get("RELEASE_AFTER", "0"))

logger = init_logger("vllm.releasing")


class _Releasing:
    connector_worker: Any

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)  # type: ignore[call-arg]
        if self.connector_worker is None:
            return
        self._lock = threading.RLock()
        """NIXL is not thread-safe: held while vLLM's main thread uses it, and while an engine is removed."""
        self._addresses: dict[str, tuple[str, int]] = {}
        self._refusals: dict[str, int] = {}
        self._dead_since: dict[int, float] = {}
        self._shake = self.connector_worker._nixl_handshake
        self.connector_worker._nixl_handshake = self._handshake
        threading.Thread(target=self._watch, daemon=True, name="releasing").start()

    def start_load_kv(self, *given: Any, **named: Any) -> Any:
        with self._lock:
            return super().start_load_kv(*given, **named)  # type: ignore[misc]

    def get_finished(self, *given: Any, **named: Any) -> Any:
        with self._lock:
            return super().get_finished(*given, **named)  # type: ignore[misc]

    def _handshake(self, host: str, port: int, size: int, engine: str, *rest: Any, **named: Any) -> Any:
        self._addresses[engine] = host, port
        return self._shake(host, port, size, engine, *rest, **named)

    def _watch(self) -> None:
        while True:
            time.sleep(_PERIOD_SECONDS)
            try:
                for engine, address in list(self._addresses.items()):
                    if self._is_gone(engine, address):
                        self._remove(engine)
                self._release()
            except Exception:
                logger.exception("RELEASING failed")

    def _is_gone(self, engine: str, address: tuple[str, int]) -> bool:
        try:
            socket.create_connection(address, 1).close()
            self._refusals[engine] = 0
        except ConnectionRefusedError:
            self._refusals[engine] = self._refusals.get(engine, 0) + 1
        except OSError:
            pass
        return self._refusals.get(engine, 0) >= _REFUSALS + _AFTER_SECONDS / _PERIOD_SECONDS

    def _remove(self, engine: str) -> None:
        worker = self.connector_worker
        with self._lock, worker._handshake_lock:
            known = worker._recving_metadata.items()
            waiting = {name for name, meta in known if meta.remote and meta.remote.engine_id == engine}
            if engine in worker._remote_agents and not waiting & set(worker._recving_transfers):
                worker._cleanup_remote_engine(engine, log_eviction=False)
                logger.info("RELEASING engine %s: removed", engine)

    def _release(self) -> None:
        now = time.monotonic()
        for pid in {region.pid for region in ucx_mappings.regions()}:
            if not ucx_mappings.is_alive(pid):
                self._dead_since.setdefault(pid, now)
        if any(now - since >= _AFTER_SECONDS for since in self._dead_since.values()):
            done = ucx_mappings.release_dead()
            self._dead_since = self._dead_since if done.used else {}
            if done.closed:
                logger.info(
                    "RELEASING mappings: %d closed, %.2f GiB, %d used", done.closed, done.length / 2**30, done.used
                )


class ReleasingNixlConnector(_Releasing, NixlPullConnector):  # type: ignore[misc]
    """D reads from P."""


class ReleasingNixlPushConnector(_Releasing, NixlPushConnector):  # type: ignore[misc]
    """P writes to D."""
