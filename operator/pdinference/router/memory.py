"""Limits that grow with the memory of the container.

Tests: tests/router/test_door.py
"""

from pathlib import Path
from typing import Final

from pdinference.router.server import RequestLimits

_CGROUP: Final = Path("/sys/fs/cgroup")
_FILES: Final = ("memory.max", "memory/memory.limit_in_bytes")
"""Of the versions 2 and 1 of cgroups."""
_MIB: Final = 2**20
_DEFAULT: Final = 1024 * _MIB
_PROCESS: Final = 200 * _MIB
"""Code, metrics, the index of prefixes, and what requests take beside their bytes."""
_LEAST: Final = 128 * _MIB


def memory_limit(cgroup: Path = _CGROUP) -> int | None:
    """The memory limit of this container in bytes; None without one."""
    for name in _FILES:
        try:
            found = int((cgroup / name).read_text(encoding="ascii"))
        except (OSError, ValueError):  # `max` is no limit
            continue
        return found if found < 2**60 else None
    return None


def limits_of(memory: int | None) -> RequestLimits:
    """The limits of a router with so much memory.

    A body takes up to three times its size: as it came, for P or D, and in the buffers of the connection. A whole
    answer takes up to two times its size.

    Args:
        memory: Bytes; None without a limit, which counts as 1 GiB.
    """
    free = max(_LEAST, (memory or _DEFAULT) - _PROCESS)
    return RequestLimits(bodies=free // 6, answers=free // 8)
