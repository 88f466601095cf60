"""Faults: an operator that is killed, as the kernel would when memory runs out; an engine that stands still."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster
from e2e.cluster.cgroups import processes

_ENGINE = b"VLLM::EngineCore"
"""The title that vLLM gives its process for the model (vllm/v1/engine/core.py)."""

DRAINS = "[shutdown] EngineCore: draining in-flight requests"
"""What vLLM writes at SIGTERM if, and only if, requests are under way in it (vllm/v1/engine/core.py)."""
ENDS = "[shutdown] EngineCore: request processing complete"
"""What vLLM writes when it ends by itself, before its deadline and the kubelet's SIGKILL, busy or not."""


def kill_operators(cluster: Cluster, at_most: int = 100) -> int:
    """SIGKILL operators of one cluster, and of no other on this machine; how many comes back."""
    found = sorted(pid for pid in set(processes(cluster.spec)) if _is_operator(pid))[:at_most]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


@contextmanager
def standing_still(cluster: Cluster, pod: dict[str, Any]) -> Iterator[None]:
    """Stop the engine of a vLLM pod (SIGSTOP) and let it go on at the end: what is under way stays so meanwhile.

    The API server in front of it runs on: it takes requests, and notices SIGTERM.

    Raises:
        ValueError: The pod has no such process, or several.
    """
    (engine,) = {pid for pid in processes(cluster.spec) if _is_engine(pid, pod["metadata"]["uid"])}
    os.kill(engine, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(engine, signal.SIGCONT)


def _is_engine(pid: int, pod_uid: str) -> bool:
    try:
        titled = Path(f"/proc/{pid}/cmdline").read_bytes().startswith(_ENGINE)
        return titled and pod_uid in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):  # it ended
        return False


def _is_operator(pid: int) -> bool:
    try:
        return b"bin/pdinference\0run" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it ended
        return False
