"""What strangers nested in documents that have not been checked.

Tests: tests/checks/test_expert_transport.py, tests/advise/advice/test_late_starts.py
"""

from collections.abc import Mapping
from typing import Any


def at(value: Any, *path: str) -> Any:
    """The value at the end of a path of names; None if a part of the path is missing, or is no map."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
