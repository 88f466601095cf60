"""The share of requests that keep bounds made from lone ones, and the rate at which it is 95 %: for `compared`."""

import statistics
from collections import defaultdict
from dataclasses import replace
from typing import Any, Final

from benchmarks.on_gpu.loads import Load

_KEPT: Final = 0.95
_FIRST: Final = 4.0
_GAP: Final = 3.0
_LATER_TURN: Final = 0
"""In place of the length of its prompt, of which hardly anything is computed."""
_STEP: Final = 1.25
TRIES: Final = 4


class Bounds:
    """What lone requests took, in seconds, by the tokens of their prompts."""

    def __init__(self) -> None:
        self._lone: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)

    def learn(self, result: dict[str, Any]) -> None:
        """Take all requests of a run (`loads.run` with each) as lone ones."""
        for _, first, last, events, prompt, turn in result["each"]:
            self._lone[_key(prompt, turn)].append((first, (last - first) / max(1, events - 1)))

    def share_kept(self, result: dict[str, Any]) -> float:
        """The share of a run's counted requests with both bounds kept; one without a whole answer keeps none."""
        counted = [one for one in result["each"] if one[0] >= result["warm_up"]]
        kept = sum(map(self._keeps, counted))
        return kept / max(1, len(counted) + int(result["incomplete"]))

    def _keeps(self, one: tuple[float, float, float, int, int, int]) -> bool:
        _, first, last, events, prompt, turn = one
        firsts, gaps = zip(*self._lone[_key(prompt, turn)], strict=True)
        slowest_first, slowest_gap = _FIRST * statistics.median(firsts), _GAP * statistics.median(gaps)
        return bool(first <= slowest_first and (last - first) / max(1, events - 1) <= slowest_gap)


def _key(prompt: int, turn: int) -> int:
    return prompt if turn == 0 else _LATER_TURN


def next_load(load: Load, shares: list[float], tries: int = TRIES) -> Load | None:
    """The load at the next rate, until the share that is kept crosses 95 %, or after a few; None at the end.

    Args:
        load: At the last rate.
        shares: What was kept at each rate so far.
        tries: Rates at most. One is enough to see that a mode does not reach the goodput of another.
    """
    up = shares[0] >= _KEPT
    if len(shares) == tries or (shares[-1] >= _KEPT) != up:
        return None
    return replace(load, rate=round(load.rate * (_STEP if up else 1 / _STEP), 3))
