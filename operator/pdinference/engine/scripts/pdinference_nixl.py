"""vLLM's NIXL connector for engines that share a pod: it lets go of a peer's GPU memory when its process is gone.

Without that, a P that died finds its memory in use for as long as D lives, and cannot start again. A thread of each
worker tries the side channels of its peers twice a second. If one refuses two connections in a row, its engine is
removed, as vLLM removes one that was idle for an hour; then the mappings of dead processes are closed.
"""

import socket
import threading
from typing import Any

import pdinference_cuda_ipc  # type: ignore[import-not-found]
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector
from vllm.logger import init_logger

_PERIOD_SECONDS = 0.5
_REFUSALS = 2
_NEEDED = (
    "_nixl_handshake",
    "_cleanup_remote_engine",
    "_handshake_lock",
    "_remote_agents",
    "_recving_metadata",
    "_recving_transfers",
)
"""What of vLLM's worker this module uses (nixl/base_worker.py, releases 0.26 to 0.33)."""

logger = init_logger("vllm.pdinference_nixl")


# vLLM has rules for connectors with its own names, and takes the class of a module first (kv_connector/factory.py).
class NixlConnector(NixlPullConnector):  # type: ignore[misc]
    """D reads from P. That D maps P's memory; nothing is mapped the other way."""

    connector_worker: Any

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._in_use = threading.RLock()
        """NIXL is not thread-safe: held while vLLM's main thread uses it, and while an engine is removed."""
        if self.connector_worker is not None:
            self._peers = _Peers(self.connector_worker, self._in_use)

    def start_load_kv(self, *given: Any, **named: Any) -> Any:
        """As vLLM's."""
        with self._in_use:
            return super().start_load_kv(*given, **named)

    def get_finished(self, *given: Any, **named: Any) -> Any:
        """As vLLM's."""
        with self._in_use:
            return super().get_finished(*given, **named)


class _Peers:
    """The engines to which a worker has shaken hands.

    Args:
        worker: The connector's worker.
        in_use: Held while NIXL is in use.
    """

    def __init__(self, worker: Any, in_use: threading.RLock) -> None:
        self._worker = worker
        self._in_use = in_use
        self._addresses: dict[str, tuple[str, int]] = {}
        self._refusals: dict[str, int] = {}
        self._met = threading.Event()
        if missing := [name for name in _NEEDED if not hasattr(worker, name)]:
            logger.warning("Memory of peers that die is not released: this vLLM has no %s.", ", ".join(missing))
            return
        self._shake = worker._nixl_handshake
        worker._nixl_handshake = self._handshake
        threading.Thread(target=self._watch, daemon=True, name="pdinference-peers").start()

    def _handshake(self, host: str, port: int, size: int, engine: str, *rest: Any, **named: Any) -> Any:
        self._addresses[engine] = host, port
        self._met.set()
        return self._shake(host, port, size, engine, *rest, **named)

    def _watch(self) -> None:
        pause = threading.Event()
        self._met.wait()
        if unknown := pdinference_cuda_ipc.unknown_library():
            logger.warning("Memory of peers that die is not released: the UCX library %s is not known.", unknown)
        while not pause.wait(_PERIOD_SECONDS):
            try:
                self._look()
            except Exception:
                logger.exception("Memory of a peer could not be released.")

    def _look(self) -> None:
        for engine, address in list(self._addresses.items()):
            if (refusals := self._refusals.get(engine, 0)) < _REFUSALS:  # later ones may be answered by a new engine
                self._refusals[engine] = refusals = refusals + 1 if _refuses(address) else 0
            if refusals >= _REFUSALS:
                self._remove(engine)
        released = pdinference_cuda_ipc.release_dead()
        if released.closed:
            logger.info(
                "Released %.2f GiB of processes that are gone (%d mappings, %d are still in use).",
                released.length / 2**30, released.closed, released.used,
            )  # fmt: skip

    def _remove(self, engine: str) -> None:
        """Forget an engine that is gone, unless a transfer from it has not ended."""
        worker = self._worker
        with self._in_use, worker._handshake_lock:
            known = list(worker._recving_metadata.items())
            waiting = {name for name, meta in known if meta.remote and meta.remote.engine_id == engine}
            if waiting & set(worker._recving_transfers):
                return
            if engine in worker._remote_agents:
                worker._cleanup_remote_engine(engine, log_eviction=False)
                logger.info("Removed engine %s, which is gone.", engine)
        self._addresses.pop(engine, None)
        self._refusals.pop(engine, None)


def _refuses(address: tuple[str, int]) -> bool:
    """Whether no process listens at an address of this pod."""
    try:
        socket.create_connection(address, 1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
