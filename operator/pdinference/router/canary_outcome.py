"""What a canary shows: its answers through P and D are compared with those of P alone. Pure.

bf16 is not exact, so what P and D answer to one prompt differs a little. Whether answers show anything follows from
what P answers to the two prompts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pdinference.api.names import Verification

_LIMIT: Final = 0.15
"""Distance above which two answers to the same prompt are different, from 0 to 1. In bf16 on an H200 the largest of 80
was 0.084, and the least of 20 with a damaged block 0.19 (ADR 0021)."""
_TELLS_APART: Final = 2 * _LIMIT
"""Distance between the answers to the two prompts, from which on answers alone show which prompt D had."""
_CHANCE: Final = frozenset({Verification.WRONG_ANSWER, Verification.COMPUTED_BY_DECODE})
"""Rounding can cause the one once, and requests of clients through other routers the other."""

Distribution = Mapping[str, float]
"""Probabilities of the most likely first tokens, with the sum 1."""


@dataclass(frozen=True, slots=True)
class CanaryOutcome:
    """How a canary ended.

    Attributes:
        state: The outcome.
        reason: What was compared, or why nothing was; for logs.
        tokens: Prompt tokens of both prompts.
        distance: Largest distance between the answers of P alone, and through P and D.
        limit: Distance above which they are different.
        by_parameter: Whether it was P that failed, so that nothing is known of D.
        unrelated: Whether a pod failed in a way that need not concern the transfer, but its load, for example.
    """

    state: Verification
    reason: str
    tokens: int = 0
    distance: float = math.nan
    limit: float = math.nan
    by_parameter: bool = False
    unrelated: bool = False

    @property
    def shows_the_way(self) -> bool:
        """Whether it shows if KV cache gets from P to D."""
        return not (self.by_parameter or self.unrelated or self.state is Verification.NOT_APPLICABLE)

    @property
    def may_be_chance(self) -> bool:
        """Whether a second canary has to confirm it."""
        return self.state in _CHANCE


def judged(
    tokens: int, through: Sequence[Distribution | None], alone: Sequence[Distribution | None], *, arrived: bool | None
) -> CanaryOutcome:
    """The outcome of a canary whose pods have answered.

    Args:
        tokens: Prompt tokens of both prompts.
        through: The answers to both prompts through P and D; None for one without probabilities.
        alone: Those of P alone.
        arrived: Whether the prompts came from P, by D's counters; None if D does not count that.
    """
    apart = distance(*alone)
    known = [found for found in map(distance, through, alone) if not math.isnan(found)]
    worst = max(known, default=math.nan)  # NaN is above no limit
    words = f"the answers are {worst:.3g} apart, the limit is {_LIMIT:g}"
    if worst > _LIMIT:
        return CanaryOutcome(Verification.WRONG_ANSWER, words, tokens, worst, _LIMIT)
    if arrived is False:
        words = "by D's counters, too few prompt tokens came from P"
        return CanaryOutcome(Verification.COMPUTED_BY_DECODE, words, tokens, worst, _LIMIT)
    if arrived is None:
        words += "; D has no counters, so it is unknown whether it computed the prompts itself"
        return CanaryOutcome(Verification.NOT_APPLICABLE, words, tokens, worst, _LIMIT)
    if not apart >= _TELLS_APART:  # NaN is not
        words += f"; the model answers both prompts alike ({apart:.3g} apart), so D's counters decide"
    return CanaryOutcome(Verification.VERIFIED, words, tokens, worst, _LIMIT)


def distance(one: Distribution | None, other: Distribution | None) -> float:
    """Total variation distance, 0 to 1; NaN if one is unknown."""
    if one is None or other is None:
        return math.nan
    return sum(abs(one.get(token, 0.0) - other.get(token, 0.0)) for token in one.keys() | other.keys()) / 2
