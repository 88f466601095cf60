"""API keys in a value of a Secret.

Tests: tests/runner/test_access.py, tests/router/test_keys.py
"""

from collections.abc import Iterator
from typing import Final

LONGEST_VALUE: Final = 16384
"""Number of bytes that are read of a value."""
_SHORTEST_KEY: Final = 16


def keys_in(value: bytes) -> Iterator[bytes]:
    """The keys, one on each line, so that two are valid while one replaces the other. Shorter lines are ignored."""
    return (line for line in value.split() if len(line) >= _SHORTEST_KEY)
