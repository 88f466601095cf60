"""A straight line through what was observed: a fixed time, and a time for each unit. Pure.

It is fitted to the recent observations (weighted least squares); one that is far off counts as if it were less far.

Tests: tests/router/test_line.py
"""

import math
from typing import Final

KEPT: Final = 0.98
"""Weight of what was observed before, with each observation: the last 50 count most."""
ENOUGH: Final = 5
"""Observations of a line from which on it is more than a guess."""
_FAR: Final = 3.0
"""In mean distances from the line: an observation that is farther off counts as if it were so far."""
_NOTHING: Final = 1e-9
"""Weight of observations that are forgotten."""
_LIKE: Final = 3.0
"""Observations that the other line counts as. With fewer, three of requests of one length, say nothing of each unit."""


class Line:
    """A fixed time and a time for each unit, both at least 0 seconds.

    Args:
        like: What this line is taken for, as far as little is observed yet, or was for long; None if nothing is alike.
        from_origin: Whether no units take no time, if all observations are of as many units.
        kept: Weight of what was observed before, with each observation.

    Attributes:
        observations: Number of observations.
    """

    def __init__(self, like: "Line | None" = None, *, from_origin: bool = False, kept: float = KEPT) -> None:
        self.observations = 0
        self._like = like
        self._origin = float(from_origin)
        self._kept = kept
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self._distance = 0.0

    @property
    def is_known(self) -> bool:
        """Whether there were enough observations."""
        return self.observations >= ENOUGH

    def at(self, units: float) -> float:
        """Seconds for so many units."""
        fixed, each = self.fitted()
        return fixed + each * units

    def observe(self, units: float, seconds: float) -> None:
        """Take an observation. One that is not finite and positive is none."""
        if not (0 <= units < math.inf and 0 <= seconds < math.inf):
            return
        expected = self.at(units)
        distance = seconds - expected
        if self.is_known:
            most = _FAR * self._distance
            seconds = expected + min(most, max(-most, distance))
            self.forget()
        self.observations += 1
        self._distance += (abs(distance) - self._distance) / min(self.observations, 1 / (1 - KEPT))
        self._weight += 1
        self._x, self._y = self._x + units, self._y + seconds
        self._xx, self._xy = self._xx + units * units, self._xy + units * seconds

    def forget(self) -> None:
        """Give what was observed less weight. If nothing is alike, it counts as one observation at least."""
        if self._like is None and self._weight <= 1:
            return
        self._weight, self._x, self._y = self._weight * self._kept, self._x * self._kept, self._y * self._kept
        self._xx, self._xy = self._xx * self._kept, self._xy * self._kept

    def fitted(self) -> tuple[float, float]:
        """The fixed time, and the time for each unit. Both are 0 before the first observation."""
        weight, x, y, xx, xy = self._weight, self._x, self._y, self._xx, self._xy
        fixed = each = 0.0
        if self._like is not None:
            fixed, each = self._like.fitted()
            # So many observations of the other line, half of them at 0 units, half at twice the mean of the own ones.
            count, mean = min(_LIKE, self._like._weight), x / weight if weight > _NOTHING else 1.0
            weight, x, y = weight + count, x + count * mean, y + count * (fixed + each * mean)
            xx, xy = xx + 2 * count * mean * mean, xy + count * mean * (fixed + 2 * each * mean)
        if not weight:
            return 0.0, 0.0
        weight += self._origin
        spread = xx - x * x / weight
        if spread > 1e-6 * xx:
            each = max(0.0, (xy - x * y / weight) / spread)
        fixed = (y - each * x) / weight
        return (fixed, each) if fixed >= 0 else (0.0, xy / xx)  # then the line goes through the origin
