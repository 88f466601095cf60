"""Prompts that take longer than the objective of their first token even on an idle engine."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pdinference.performance.step import StepModel
from pdinference_advise.advice.objectives import RequestObjectives
from pdinference_advise.simulation.arrivals import Arrival

_LONGEST: Final = range(1, 10_000_001)


def note(arrivals: Sequence[Arrival], objectives: RequestObjectives, fastest: Sequence[StepModel]) -> Iterable[str]:
    """What to say if too many prompts are so long that no number of GPUs keeps the objective.

    Args:
        arrivals: The load.
        objectives: What requests should keep.
        fastest: Steps of the engines that may compute prompts.
    """
    number = Counter(arrival.kind for arrival in arrivals)
    for kind, of_kind in number.items():
        most = objectives.of(kind).ttft
        if math.isinf(most):
            continue
        longest = _longest_within(most, fastest)
        over = sum(arrival.prompt > longest for arrival in arrivals if arrival.kind == kind) / of_kind
        if 100 * over > 100 - objectives.percentile + 1e-6:
            if longest == 0:
                yield (
                    f"No prompt{f' of {kind}' if kind else ''} has its first token within {1000 * most:g} ms, even "
                    "alone on an idle engine. More GPUs do not change that. Raise --ttft."
                )
                continue
            yield (
                f"{over:.1%} of the prompts{f' of {kind}' if kind else ''} have more than {longest:,} tokens, and take "
                f"longer than {1000 * most:g} ms even on an idle engine, unless a prefix is in its cache. More GPUs do "
                "not change that. Raise --ttft, lower --percentile, or give long prompts a class (--class)."
            )


def _longest_within(seconds: float, fastest: Sequence[StepModel]) -> int:
    """Tokens of the longest prompt that an idle engine computes in that time."""

    def takes(tokens: int) -> float:
        return min(steps.prefill(tokens, tokens**2 / 2, 0, 1) for steps in fastest)

    return bisect_left(_LONGEST, seconds, key=takes)
