"""The memory of other processes that UCX has mapped into this one by CUDA IPC, and how to let go of it.

UCX keeps such a mapping until the process ends, for a new transfer of the same peer (`uct_cuda_ipc_remote_cache`). It
has no function to drop the mappings of one peer. This module reads UCX's tables at their offsets in the libraries of
NIXL 1.5.1 (UCX 1.22) on x86-64, and has UCX's own `uct_cuda_ipc_unmap_memhandle` close what no transfer uses.
"""

import ctypes
from ctypes import c_int, c_int32, c_uint, c_uint32, c_uint64
from pathlib import Path
from typing import Any, Final, NamedTuple

_LIBRARY: Final = "libuct_cuda"
_CACHE_LRU: Final = 0x70
_REGION_LRU: Final = 0x20
_START: Final = 0xD0
_LENGTH: Final = 0xD8
_MAPPED: Final = 0xF0
_REFERENCES: Final = 0xF8


class Region(NamedTuple):
    """A mapping.

    Attributes:
        pid: The process that owns the memory.
        namespace: Its PID namespace.
        device: The local GPU.
        address: Of UCX's structure.
    """

    pid: int
    namespace: int
    device: int
    address: int

    @property
    def length(self) -> int:
        """Its bytes."""
        return int(c_uint64.from_address(self.address + _LENGTH).value)

    @property
    def references(self) -> int:
        """Transfers and keys that use the mapping."""
        return int(c_uint64.from_address(self.address + _REFERENCES).value)


class Released(NamedTuple):
    """What became of the mappings of dead processes: number and bytes of those closed, and number of those in use."""

    closed: int = 0
    length: int = 0
    used: int = 0


def regions() -> list[Region]:
    """All mappings of this process."""
    library = _library()
    if library is None:
        return []
    table = ctypes.addressof(ctypes.c_char.in_dll(library, "uct_cuda_ipc_remote_cache"))  # a khash
    flags, keys, values = (c_uint64.from_address(table + at).value for at in (16, 24, 32))
    found = []
    for at in range(c_uint32.from_address(table).value):
        if c_uint32.from_address(flags + 4 * (at >> 4)).value >> ((at & 15) << 1) & 3:
            continue  # an empty bucket
        key = keys + 12 * at
        peer = c_int32.from_address(key).value, c_uint32.from_address(key + 4).value
        device = c_int32.from_address(key + 8).value
        head = c_uint64.from_address(values + 8 * at).value + _CACHE_LRU
        link = c_uint64.from_address(head + 8).value
        while link != head:
            found.append(Region(*peer, device, link - _REGION_LRU))
            link = c_uint64.from_address(link + 8).value
    return found


def is_alive(pid: int) -> bool:
    """Whether a process of this PID namespace runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def release_dead() -> Released:
    """Close the mappings of processes that are gone, except those that are in use."""
    library, result = _library(), Released()
    dead: dict[int, bool] = {}
    for region in regions():
        if not dead.setdefault(region.pid, not is_alive(region.pid)):
            continue
        if region.references:
            result = result._replace(used=result.used + 1)
            continue
        length = region.length
        _close(library, region)
        result = result._replace(closed=result.closed + 1, length=result.length + length)
    return result


def _close(library: Any, region: Region) -> None:
    """Give UCX the last reference back, with its cache off for this call; UCX takes its own locks."""
    start = c_uint64.from_address(region.address + _START).value
    mapped = c_uint64.from_address(region.address + _MAPPED).value
    unmap = library.uct_cuda_ipc_unmap_memhandle
    unmap.argtypes, unmap.restype = [c_int, c_uint, c_uint64, c_uint64, c_int, c_int], None
    c_uint64.from_address(region.address + _REFERENCES).value = 1
    unmap(region.pid, region.namespace, start, mapped, region.device, 0)


def _library() -> Any:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    path = next((line.split()[-1] for line in maps if _LIBRARY in line), None)
    return path and ctypes.CDLL(path)
