"""The P:D ratio of `spec.autoscaling.ratio`.

Tests: tests/planning/scaling/test_scale_spec.py
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from pdinference.api.names import Role


@dataclass(frozen=True, slots=True)
class Ratio:
    """The allowed number of P instances for each D instance, rounded up to the next whole instance.

    Attributes:
        minimum: Lowest P for one D; None for any.
        maximum: Highest P for one D; None for any.
    """

    minimum: Fraction | None = None
    maximum: Fraction | None = None

    def p_for(self, d: int) -> int:
        """The lowest count of P for this count of D."""
        return math.ceil(self.minimum * d) if self.minimum is not None else 0

    def d_for(self, p: int) -> int:
        """The lowest count of D for this count of P; P may be the next whole instance above the ratio."""
        return math.floor((p - 1) / self.maximum) + 1 if self.maximum is not None and p > 0 else 0

    def companions(self, role: Role, count: int) -> int:
        """The lowest count of the other role for this count of `role`."""
        return self.d_for(count) if role is Role.PARAMETER else self.p_for(count)

    @property
    def possible(self) -> bool:
        """Whether any counts satisfy the ratio."""
        return self.minimum is None or self.maximum is None or self.minimum <= self.maximum

    def least(self, p: int, d: int) -> tuple[int, int]:
        """The lowest counts that satisfy the ratio and are at least these.

        Raises:
            ValueError: No counts satisfy the ratio.
        """
        if not self.possible:
            raise ValueError(f"no counts satisfy a ratio between {self.minimum} and {self.maximum}")
        while (more := (max(p, self.p_for(d)), max(d, self.d_for(p)))) != (p, d):
            p, d = more
        return p, d
