"""The GPU memory of other processes that UCX has mapped into this one by CUDA IPC, and how to let go of it.

UCX keeps such a mapping until this process ends, for the next transfer of the same peer (`uct_cuda_ipc_remote_cache` in
src/uct/cuda/cuda_ipc/cuda_ipc_cache.c). A dead peer's memory stays in use with it, and UCX has no function to drop the
mappings of one peer (UCX issue 11753). This module reads UCX's table, and has UCX's own `uct_cuda_ipc_unmap_memhandle`
close what no transfer uses. The places of what it reads hold for the libraries that it knows by their SHA-256 alone.
"""

import ctypes
import hashlib
from ctypes import c_int, c_int32, c_uint, c_uint32, c_uint64
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_KNOWN = {
    "NIXL 1.5.0, CUDA 12, x86-64": "d56cab09c7972ccb",
    "NIXL 1.5.0, CUDA 13, x86-64": "bfb9df3c07db3f5f",
    "NIXL 1.5.1, CUDA 12, x86-64": "076f42cb3fd1ac08",
    "NIXL 1.5.1, CUDA 13, x86-64": "ed9612eb87801cd5",
}
"""Beginnings of the SHA-256 of libuct_cuda.so in the wheels of PyPI. The code of the functions that map and unmap is
the same in all four (disassembled), and that of the last one was tried on GPUs."""
_CACHE_LRU = 0x70
_REGION_LRU = 0x20
_START = 0xD0
_LENGTH = 0xD8
_MAPPED = 0xF0
_REFERENCES = 0xF8


class Region(NamedTuple):
    """A mapping.

    Attributes:
        pid: The process that owns the memory.
        namespace: The inode of its PID namespace.
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


def release_dead() -> Released:
    """Close the mappings of processes that are gone, except those that are in use. Nothing with an unknown library."""
    path, result = _path(), Released()
    if not path or not is_known(path):
        return result
    library = ctypes.CDLL(path)
    dead: dict[int, bool] = {}
    for region in _regions(library):
        if not dead.setdefault(region.pid, _is_dead(region)):
            continue
        if region.references:
            result = result._replace(used=result.used + 1)
            continue
        length = region.length
        _close(library, region)
        result = result._replace(closed=result.closed + 1, length=result.length + length)
    return result


def unknown_library() -> str:
    """The path of the library that is loaded, if this module does not know it; empty otherwise."""
    path = _path()
    return "" if not path or is_known(path) else path


@cache
def is_known(path: str) -> bool:
    """Whether the library in a file is one of those that this module knows."""
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return any(digest.startswith(known) for known in _KNOWN.values())


@cache
def _path() -> str:
    """The library's file; empty if it is not loaded. UCX loads it when NIXL starts, or not at all."""
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        return next((line.split()[-1] for line in maps if "/libuct_cuda" in line), "")


def _regions(library: Any) -> list[Region]:
    """All mappings of this process, from UCX's hash table (a khash) of lists."""
    table = ctypes.addressof(ctypes.c_char.in_dll(library, "uct_cuda_ipc_remote_cache"))
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


def _is_dead(region: Region) -> bool:
    """Whether its process, which was one of this PID namespace, is gone."""
    if region.namespace != Path("/proc/self/ns/pid").stat().st_ino & 0xFFFFFFFF:
        return False
    try:
        return Path(f"/proc/{region.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def _close(library: Any, region: Region) -> None:
    """Give UCX the last reference back, with its cache off for this call; UCX takes its own locks."""
    start = c_uint64.from_address(region.address + _START).value
    mapped = c_uint64.from_address(region.address + _MAPPED).value
    unmap = library.uct_cuda_ipc_unmap_memhandle
    unmap.argtypes, unmap.restype = [c_int, c_uint, c_uint64, c_uint64, c_int, c_int], None
    c_uint64.from_address(region.address + _REFERENCES).value = 1
    unmap(region.pid, region.namespace, start, mapped, region.device, 0)
