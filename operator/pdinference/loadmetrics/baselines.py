"""Baseline inter-token latencies: the shortest that this operator has observed, by revision of D.

Tests: tests/loadmetrics/test_scrape.py
"""

from collections.abc import Collection, Iterable
from typing import Final

from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.scraping.window import Window, decode_window
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.baseline import is_better, known_baseline

_CREDIBLE_S: Final = (1e-6, 1e4)
"""Plausible inter-token latencies. A wrong baseline would persist in the status of the PDScaler."""


class Baselines:
    """The baseline of each revision of each resource."""

    def __init__(self) -> None:
        self._best: dict[tuple[Owner, str], float] = {}

    def note(self, owner: Owner, revision: str, window: Window, now: float) -> bool:
        """Record the latency of a D pod. Returns whether it is a better baseline."""
        decoding = decode_window(window, now)
        least, most = _CREDIBLE_S
        if decoding is None or not least <= decoding.token_seconds <= most:
            return False
        key, seconds = (owner, revision), decoding.token_seconds
        before = self._best.get(key)
        self._best[key] = seconds if before is None else min(seconds, before)
        return is_better(seconds, before)

    def of_resource(self, owner: Owner) -> dict[str, float]:
        """The baselines of a resource, in seconds by revision."""
        return {revision: seconds for (known, revision), seconds in self._best.items() if known == owner}

    def shortest(self, owner: Owner, revisions: Iterable[str], scaler: ScalerState | None) -> float | None:
        """The shortest baseline of these revisions, in seconds, including those in the status of the PDScaler.

        This operator may have observed only busy pods since it started.
        """
        known = self.of_resource(owner)
        names = set(revisions)
        earlier = [seconds for name in names if (seconds := known_baseline(scaler, name)) is not None]
        return min([*earlier, *(known[name] for name in names & known.keys())], default=None)

    def keep(self, live: Collection[tuple[Owner | None, str]]) -> None:
        """Remove all revisions except these."""
        self._best = {key: seconds for key, seconds in self._best.items() if key in live}
