"""Keep the files of a KV cache's disk tier within a size. Arguments: folder, bytes, shared memory of the pod.

What was not used for longest is deleted first, as far as the file system keeps the time of reading; vLLM takes a file
that is gone for a block that it has to compute.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

FULL, ENOUGH = 0.9, 0.8  # of the size: where deleting begins, and where it ends; blocks arrive meanwhile
ABANDONED_SECONDS = 900


def bound(folder: str, size: int) -> None:
    """Delete the files that were not used for longest, if there are too many."""
    # Of each file as little as possible: there may be hundreds of thousands.
    found = sorted((max(stat.st_atime, stat.st_mtime), stat.st_size, str(path)) for path, stat in _files(folder))
    used = sum(length for _, length, _ in found)
    if used <= FULL * size:
        return
    for _, length, path in found:
        if used <= ENOUGH * size:
            return
        if path.endswith(".bin") and _removed(Path(path)):
            used -= length


def release(shared_memory: str, now: float) -> None:
    """Unlink CPU tiers that exist for long: who has one mapped keeps it, and one of a dead process frees its memory."""
    for path, stat in _files(shared_memory):
        if path.name.startswith("vllm_offload_") and now - stat.st_ctime > ABANDONED_SECONDS:
            _removed(path)


def _files(folder: str) -> Iterator[tuple[Path, os.stat_result]]:
    """All files below a folder; what vanishes meanwhile is left out."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                yield path, path.stat()
            except OSError:
                continue


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # somebody else was quicker
        return False
    return True


def main(folder: str, size: int, shared_memory: str) -> None:
    """Look once a second, or less often where looking takes long."""
    while True:
        begin = time.monotonic()
        bound(folder, size)
        release(shared_memory, time.time())
        time.sleep(max(1, 4 * (time.monotonic() - begin)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
