"""How fast idle D pods are, as this operator saw it: the shortest time for a token, by revision."""

from collections.abc import Collection, Iterable
from typing import Final

from pdinference.cluster.kinds import Owner
from pdinference.loadmetrics.scraping.window import Window, decode_window
from pdinference.planning.scale_target import ScalerState
from pdinference.planning.scaling.baseline import is_better, known_baseline

_CREDIBLE_S: Final = (1e-6, 1e4)
"""Anything else is no time for a token. An HPA would carry it for ever."""


class Baselines:
    """The best of each revision of each resource."""

    def __init__(self) -> None:
        self._best: dict[tuple[Owner, str], float] = {}

    def note(self, owner: Owner, revision: str, window: Window, now: float) -> bool:
        """Take what a D pod told; whether it was faster than any before."""
        decoding = decode_window(window, now)
        least, most = _CREDIBLE_S
        if decoding is None or not least <= decoding.token_seconds <= most:
            return False
        key, seconds = (owner, revision), decoding.token_seconds
        before = self._best.get(key)
        self._best[key] = seconds if before is None else min(seconds, before)
        return is_better(seconds, before)

    def of_resource(self, owner: Owner) -> dict[str, float]:
        """What was seen of a resource."""
        return {revision: seconds for (known, revision), seconds in self._best.items() if known == owner}

    def shortest(self, owner: Owner, revisions: Iterable[str], scaler: ScalerState | None) -> float | None:
        """The shortest time of these revisions, by the memory of operators before this one, too.

        The pods may have been busy ever since this one began.
        """
        known = self.of_resource(owner)
        names = set(revisions)
        earlier = [seconds for name in names if (seconds := known_baseline(scaler, name)) is not None]
        return min([*earlier, *(known[name] for name in names & known.keys())], default=None)

    def keep(self, live: Collection[tuple[Owner | None, str]]) -> None:
        """Forget revisions that are gone."""
        self._best = {key: seconds for key, seconds in self._best.items() if key in live}
