"""An address-space limit around tests with hostile inputs, so that a fault ends a test and not the machine."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

_MORE = 2 << 30


@pytest.fixture(autouse=True, scope="module")
def address_space() -> Iterator[None]:
    """Two GiB more than the process has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = 4096 * int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (size + _MORE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
