"""The P and D pods that give a router pod no answers, as it reports them. Its names of pods are untrusted.

Tests: tests/loadmetrics/test_routers.py
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pdinference.api.names import METRIC_POD_FAULT, PodFault
from pdinference.loadmetrics.scraping.text_format import name_of, sample

_NAME: Final = METRIC_POD_FAULT.encode()
_FAULTS: Final = {fault.encode(): fault for fault in PodFault}
_MOST: Final = 64
"""Pods that are read at most. A router reports fewer."""


class PodFaultExposition:
    """Takes the lines of a response of a router pod."""

    def __init__(self) -> None:
        self.found: dict[str, PodFault] = {}
        """The fault of each pod, by its name."""

    def take(self, line: bytes) -> None:
        """Add a line.

        Raises:
            UnreadableError: The line is malformed.
        """
        if name_of(line) != _NAME or len(self.found) >= _MOST:
            return
        found = sample(line)
        fault = _FAULTS.get(found.labels.get(b"fault", b""))
        if fault is not None and found.value == 1:
            self.found[found.labels.get(b"pod", b"").decode(errors="replace")] = fault


def merged(reported: Iterable[Mapping[str, PodFault]]) -> dict[str, PodFault]:
    """What router pods report together. Each has its own requests, so one may see what another does not."""
    found: dict[str, PodFault] = {}
    order = list(PodFault)
    for faults in reported:
        for pod, fault in faults.items():
            found[pod] = min(found.get(pod, fault), fault, key=order.index)
    return found
