"""The load that is expected when a pod that is created now will be ready, while the load rises steadily.

A line is fitted to the loads of the last minutes by least squares. It counts only if the load rose in both halves of
that time and in the last minute, and if the slope is clear of the noise. What the choice of the constants costs and
gives is in benchmarks/results/autoscaling.md.

Tests: tests/planning/scaling/test_look_ahead.py
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

WINDOW_S: Final = 300.0
"""Time over which a rise is judged."""
_COVERED: Final = 0.8
"""Share of the window that the loads must cover."""
_FEWEST: Final = 6
_SHARE: Final = 0.25
"""Least share of the rise in each half of the window."""
_ERRORS: Final = 4.0
"""How many standard errors the slope is above 0. Two would do for independent loads. These are means over half a
minute, so neighbouring ones have parts in common."""
_LATELY_S: Final = 60.0
"""The last part of the window, in which the load must have risen, too."""
_MOST: Final = 1.5
"""The highest expected load, in multiples of the present one."""

Load = tuple[float, float]
"""Time in seconds, and the load."""


def expected(seen: Sequence[Load], start_seconds: float) -> float:
    """The load after the start of a pod: at least the present one, and that one unless the load rises steadily.

    Args:
        seen: Loads of the last minutes, the present one last. At least one.
        start_seconds: How long a pod takes until it is ready.
    """
    now, present = seen[-1]
    if not _rises_in_both_halves(seen) or not _still_rises(seen):
        return present
    middle, mean = fmean(at for at, _ in seen), fmean(load for _, load in seen)
    spread = sum((at - middle) ** 2 for at, _ in seen)
    slope = sum((at - middle) * (load - mean) for at, load in seen) / spread
    rest = sum((load - mean - slope * (at - middle)) ** 2 for at, load in seen)
    if slope < _ERRORS * math.sqrt(rest / (len(seen) - 2) / spread):
        return present
    then = mean + slope * (now - middle + min(start_seconds, WINDOW_S))  # no further ahead than back
    return max(present, min(then, _MOST * present))


def _rises_in_both_halves(seen: Sequence[Load]) -> bool:
    """By the means of its thirds: the second is above the first, and the third above the second."""
    if len(seen) < _FEWEST or seen[-1][0] - seen[0][0] < _COVERED * WINDOW_S:
        return False
    third = len(seen) // 3
    parts = (seen[:third], seen[third:-third], seen[-third:])
    means = [fmean(load for _, load in part) for part in parts]
    rise = means[-1] - means[0]
    return rise > 0 and all(after - before >= _SHARE * rise for before, after in pairwise(means))


def _still_rises(seen: Sequence[Load]) -> bool:
    """By the mean of the last part of the window, and of the part before it."""
    now = seen[-1][0]
    last = [load for at, load in seen if at > now - _LATELY_S]
    before = [load for at, load in seen if now - 2 * _LATELY_S < at <= now - _LATELY_S]
    return bool(before) and fmean(last) > fmean(before)
