"""A worker's engines that are gone are removed, on vLLM's own names; with real engines in e2e/test_host_local.py."""

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pdinference.engine.scripts import host_engines
from tests.waiting import wait_until

pytestmark = pytest.mark.vllm


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, imported as vLLM imports it."""
    monkeypatch.syspath_prepend(str(Path(host_engines.__file__).parent))
    import pdinference_nixl  # type: ignore[import-not-found] # noqa: PLC0415 - its folder is on the path only now

    yield pdinference_nixl
    for name in ("pdinference_nixl", "pdinference_cuda_ipc"):
        sys.modules.pop(name, None)


def test_vllms_worker_has_what_it_uses(script: ModuleType) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker  # noqa: PLC0415 - not always installed

    source = Path(base_worker.__file__).read_text(encoding="utf-8")
    assert [name for name in script._NEEDED if f"self.{name}" not in source and f"def {name}" not in source] == []
    assert script.NixlConnector.__mro__[1].__name__ == "NixlPullConnector"


class Worker:
    """What vLLM's worker has of its peers."""

    def __init__(self) -> None:
        self._handshake_lock = threading.RLock()
        self._remote_agents: dict[str, Any] = {}
        self._recving_metadata: dict[str, Any] = {}
        self._recving_transfers: dict[str, list[int]] = {}

    def _nixl_handshake(self, _host: str, _port: int, _size: int, engine: str, **_more: Any) -> str:
        self._remote_agents[engine] = {}
        return "agents"

    def _cleanup_remote_engine(self, engine: str, *, log_eviction: bool) -> None:
        assert not log_eviction
        del self._remote_agents[engine]


@pytest.fixture
def channels() -> Iterator[list[socket.socket]]:
    """Side channels of two engines."""
    found = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    yield found
    for each in found:
        each.close()


def shaken(script: ModuleType, channels: list[socket.socket]) -> tuple[Worker, Any]:
    """A worker that has shaken hands with the engines a and b."""
    worker = Worker()
    peers = script._Peers(worker, threading.RLock())
    for engine, channel in zip("ab", channels, strict=True):
        host, port = channel.getsockname()
        assert worker._nixl_handshake(host, port, 1, engine, remote_pp_size=1) == "agents"
    return worker, peers


def test_an_engine_that_is_gone_is_removed(script: ModuleType, channels: list[socket.socket]) -> None:
    worker, _ = shaken(script, channels)
    channels[0].close()
    wait_until(lambda: [*worker._remote_agents] == ["b"], lambda: f"a is removed, not {worker._remote_agents}")


def test_a_transfer_from_it_ends_first_and_a_new_engine_at_its_port_does_not_save_it(
    script: ModuleType, channels: list[socket.socket]
) -> None:
    worker, peers = shaken(script, channels)
    address = channels[0].getsockname()
    worker._recving_metadata["request"] = SimpleNamespace(remote=SimpleNamespace(engine_id="a"))
    worker._recving_transfers["request"] = [1]
    channels[0].close()
    wait_until(lambda: peers._refusals.get("a") == script._REFUSALS, "a counts as gone")
    with socket.create_server(address):
        peers._look()
        assert "a" in worker._remote_agents
        del worker._recving_transfers["request"]
        wait_until(lambda: [*worker._remote_agents] == ["b"], "a is removed")


def test_a_worker_of_another_vllm_is_left_alone(script: ModuleType) -> None:
    worker = SimpleNamespace(_nixl_handshake=len)
    script._Peers(worker, threading.RLock())
    assert worker._nixl_handshake is len
