"""Memory and CPU time of a process and of those that it started.

Memory is the proportional set size, in which each shared page counts once.
"""

import os
from pathlib import Path


def family_pss_mib(pid: int) -> list[float]:
    """MiB of the process itself, then of each of its descendants; 0 for one that has just ended."""
    return [_pss_mib(one) for one in (pid, *_descendants(pid))]


def family_cpu_seconds(pid: int) -> float:
    """CPU time of the process and of its descendants, those that have ended included."""
    return sum(cpu_seconds(one) for one in (pid, *_descendants(pid)))


def cpu_seconds(pid: int) -> float:
    """CPU time of the process, and of those of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")  # user, system; of ended children


def status_mib(pid: int, field: str) -> float:
    """A field of /proc/PID/status, such as `VmRSS` or `VmHWM`, in MiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.split(f"{field}:")[1].split()[0]) / 1024


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except FileNotFoundError:
        return []
    return [one for child in children for one in (child, *_descendants(child))]


def _pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = {name: value for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(fields["Pss"].split()[0]) / 1024
