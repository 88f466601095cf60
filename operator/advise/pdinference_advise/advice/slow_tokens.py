"""Tokens that take longer than their objective even for one request alone."""

from collections.abc import Iterable, Sequence

from pdinference.performance.step import StepModel
from pdinference_advise.advice.objectives import RequestObjectives


def note(
    kinds: Iterable[str], objectives: RequestObjectives, fastest: Sequence[StepModel], context: float
) -> Iterable[str]:
    """What to say if an objective for a token is shorter than the shortest step.

    Args:
        kinds: The classes of the load; without any, the empty text.
        objectives: What requests should keep.
        fastest: Steps of the engines that may generate tokens.
        context: Mean tokens of context of a request while it runs.
    """
    step = min(steps.decode_step(1, context) for steps in fastest)
    for kind in kinds:
        most = objectives.of(kind).tpot
        if step > most:
            yield (
                f"No token{f' of {kind}' if kind else ''} takes {1000 * most:g} ms or less: a request alone on the "
                f"fastest engine needs {1000 * step:.1f} ms for each. More GPUs do not change that. Raise --tpot."
            )
