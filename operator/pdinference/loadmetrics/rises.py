"""Remembers the loads of roles for some minutes, to look ahead where they rise.

Tests: tests/loadmetrics/test_rises.py
"""

from collections import deque
from typing import Final

from pdinference.api.names import Role
from pdinference.cluster.kinds import Owner
from pdinference.planning.scaling.look_ahead import WINDOW_S, Load, expected
from pdinference.planning.scaling.signals import Signal

LOADS: Final = frozenset({Signal.PREFILL_LOAD, Signal.DECODE_LOAD})
"""Signals that can exceed the number of pods, and that follow what arrives."""
_EVERY_S: Final = 10.0
"""Loads are asked for more often, by HPAs and by Prometheus."""
_LONGEST_GAP_S: Final = 120.0
"""After a longer time without a load nothing is known of its course."""

Key = tuple[Owner, Role, Signal]


class Rises:
    """The loads of the last minutes, of each role that is asked for."""

    def __init__(self) -> None:
        self._seen: dict[Key, deque[Load]] = {}
        self._cleaned_at = 0.0

    def expected(self, key: Key, load: float, *, now: float, start_seconds: float) -> float:
        """The load when a pod that is created now is ready.

        Args:
            key: Resource, role and signal.
            load: The present load.
            now: Time of a monotonic clock.
            start_seconds: How long a pod takes until it is ready.
        """
        self._clean(now)
        seen = self._seen.setdefault(key, deque())
        if seen and now - seen[-1][0] > _LONGEST_GAP_S:
            seen.clear()
        if not seen or now - seen[-1][0] >= _EVERY_S:
            seen.append((now, load))
        while seen[0][0] < now - WINDOW_S:
            seen.popleft()
        return expected([*seen, (now, load)] if seen[-1][0] < now else [*seen], start_seconds)

    def _clean(self, now: float) -> None:
        """Forget roles that nobody asks for any more."""
        if now - self._cleaned_at > WINDOW_S:
            self._cleaned_at = now
            self._seen = {key: seen for key, seen in self._seen.items() if seen[-1][0] > now - WINDOW_S}
