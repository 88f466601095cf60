"""A fault of some releases of vLLM that breaks the KV transfer of a connector.

Tests: tests/checks/test_known_faults.py
"""

from collections.abc import Callable
from dataclasses import dataclass

from pdinference.api.v1alpha1 import Spec

Version = tuple[int, int, int]


@dataclass(frozen=True)
class KnownFault:
    """A fault of some releases.

    Attributes:
        first, last: The releases in which it was seen.
        concerns: Whether a spec can meet it.
        what: What happens, and what to do.
        source: Where it was reported or measured.
        official: Whether it is one of the official images alone.
    """

    first: Version
    last: Version
    concerns: Callable[[Spec], bool]
    what: str
    source: str
    official: bool = False
