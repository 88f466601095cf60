"""Limits of this process that the kernel keeps, whichever client of a hub is at work."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

MOST_BYTES = 1 << 53
"""Of all files of a model: beyond it, no number that a file or a hub gives is a size."""
_NOTE = 16 << 20
"""Bytes that other files may have all the same: logs and notes of the clients."""


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """End a download that has no end; who writes more gets an OSError."""
    before, hardest = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = size + _NOTE if before == resource.RLIM_INFINITY else min(before, size + _NOTE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hardest))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hardest))
