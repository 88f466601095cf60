"""What happens to an operator: killed, as the kernel would when memory runs out."""

import os
import signal
from pathlib import Path

from e2e.cluster import Cluster
from e2e.cluster.cgroups import processes


def kill_operators(cluster: Cluster, at_most: int = 100) -> int:
    """SIGKILL operators of one cluster, and of no other on this machine; how many comes back."""
    found = sorted(pid for pid in set(processes(cluster.spec)) if _is_operator(pid))[:at_most]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def _is_operator(pid: int) -> bool:
    try:
        return b"bin/pdinference\0run" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it ended
        return False
