"""Resource limits of this process, which the kernel enforces for all clients of hubs.

Tests: tests/models/hubs/test_hostile_hub.py, tests/models/files/test_hostile_files.py
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

MOST_BYTES = 1 << 53
"""Maximum size of all files of a model. Larger numbers from a file or a hub are invalid."""
_NOTE = 16 << 20
"""Allowance for other files in bytes: logs and metadata of the clients."""


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Limit the size of written files, against endless downloads. Writing more raises OSError."""
    before, hardest = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = size + _NOTE if before == resource.RLIM_INFINITY else min(before, size + _NOTE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hardest))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hardest))
