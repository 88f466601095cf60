"""Replicas that have to be there before the load comes, because pods that start for it are too late.

A reactive autoscaler gives replicas for the load that it has seen a start ago. Where the load has risen by more than
its target leaves free until they are ready, replicas that were there before bear it, or nobody does.

Tests: tests/advise/advice/test_late_starts.py
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.nested import at
from pdinference.planning.scaling.presets import PRESETS
from pdinference_advise.advice.workload.trace import Trace

_STEP_S: Final = 15.0
"""How often an HPA looks (--horizontal-pod-autoscaler-sync-period)."""
_LONGEST_S: Final = 3600
_MINUTE: Final = 4
"""Steps. A load is the mean of a minute at least: a queue of that length is no late start."""
_SIGMAS: Final = 4.0
"""Of the deviation by chance. A day has 5,760 steps, so that three would be exceeded some times a day."""
_VISIBLE: Final = 0.5
"""Where chance is more than this share of each part, a rise to the double is not seen."""


@dataclass(frozen=True, slots=True)
class Starts:
    """How long pods take to start.

    Attributes:
        seconds: By role; a role that is missing is not known.
        source: Where the numbers are from.
    """

    seconds: Mapping[Role, float]
    source: str

    @classmethod
    def stated(cls, seconds: float) -> "Starts":
        """Those of an option, for all roles."""
        return cls(dict.fromkeys(ENGINE_ROLES, seconds), "--start")

    @classmethod
    def of_status(cls, status: Any) -> "Starts":
        """Those that the operator has measured. A file may hold anything there: what is no number is not known."""
        found: dict[Role, float] = {}
        for role in ENGINE_ROLES:
            typical = at(status, "roles", role.value, "start", "typicalSeconds")
            if isinstance(typical, int) and not isinstance(typical, bool) and 0 <= typical <= _LONGEST_S:
                found[role] = float(typical)
        return cls(found, "status.roles of the file")


UNKNOWN: Final = Starts({}, "")


def least_share(load: Trace, role: Role, seconds: float) -> float | None:
    """The share of the busiest minute for which replicas have to be there before.

    A part of the load has come too early if its tokens are more than the replicas bear that were wanted ever since pods
    for it would have had to start, by more than chance. Requests come at random, so the tokens of a part vary by the
    root of the sum of their squares (a compound Poisson process). A minute shows a steep rise, and a part as long as a
    start shows one of few requests.

    Args:
        load: Requests, whose tokens count.
        role: Whose preset scales: its target and how long it waits until it removes pods.
        seconds: How long a pod takes to start.

    Returns:
        0 if pods that start for a rise are always there in time, None if the load does not tell: it is too short, or
        has too few requests.
    """
    preset = PRESETS[role]
    target = max(preset.targets.values()) / 1000
    kept = int(preset.behavior["scaleDown"]["stabilizationWindowSeconds"] / _STEP_S)
    late = math.ceil(seconds / _STEP_S)
    sums, squares = _sums(load)
    lengths = sorted({_MINUTE, max(_MINUTE, late)})
    if len(sums) <= late + lengths[-1] + 1:
        return None
    most, found, seen = 1.0, 0.0, False
    for length in lengths:
        means = [tokens / length for tokens in _of_parts(sums, length)]
        chances = [_SIGMAS * math.sqrt(each) / length for each in _of_parts(squares, length)]
        wanted = _least_of_last(_most_of_last(means, kept + 1), late + 1)
        too_late = (m for m, chance, then in zip(means, chances, wanted, strict=True) if (m - chance) * target > then)
        most, found = max(most, *means), max(found, *too_late, 0.0)
        seen = seen or any(m > 0 and chance < _VISIBLE * m for m, chance in zip(means, chances, strict=True))
    return min(1.0, found / most) if found or seen else None


def _sums(load: Trace) -> tuple[list[int], list[int]]:
    """Tokens up to each step of a load, and the sum of their squares by request."""
    steps = math.ceil(load.seconds / _STEP_S)
    tokens, squares = [0] * steps, [0] * steps
    for arrival in load.arrivals:
        step, number = min(int(arrival.at // _STEP_S), steps - 1), arrival.prompt + arrival.answer
        tokens[step] += number
        squares[step] += number**2
    return [0, *accumulate(tokens)], [0, *accumulate(squares)]


def _of_parts(sums: Sequence[int], length: int) -> Iterator[int]:
    """The sum of each part of so many steps."""
    return (end - begin for begin, end in zip(sums, sums[length:], strict=False))


def _most_of_last(values: Iterable[float], number: int) -> Iterator[float]:
    """At each place, the largest of so many values up to there."""
    falling: deque[tuple[int, float]] = deque()
    for place, value in enumerate(values):
        while falling and falling[-1][1] <= value:
            falling.pop()
        falling.append((place, value))
        if falling[0][0] <= place - number:
            falling.popleft()
        yield falling[0][1]


def _least_of_last(values: Iterable[float], number: int) -> Iterator[float]:
    """At each place, the smallest of so many values up to there."""
    return (-value for value in _most_of_last((-value for value in values), number))


def note(starts: Starts, least: Mapping[Role, float | None], mean: float) -> Iterable[str]:
    """What to say of the range of replicas.

    Args:
        starts: How long pods take to start.
        least: By role that has a range, what `least_share` found; None if a start or a rise is not known.
        mean: The mean load as a share of the busiest part.
    """
    for role, share in least.items():
        seconds, path = starts.seconds.get(role), f"spec.{role.value}.autoscaling.minReplicas"
        if seconds is None:
            yield (
                f"{path} is for the mean load: how long a pod takes to start is not known. Give it, such as --start "
                "90s, or the stored resource, whose status has it: kubectl get pdi NAME -o yaml."
            )
            continue
        known = f"A pod takes {seconds:g} s to start ({starts.source})"
        if share is None:
            yield (
                f"{known}. {path} is for the mean load: this load is too short, or has too few requests, to show how "
                "fast it rises."
            )
        elif share > mean:
            yield (
                f"{known}, and the load rises faster: {path} is for {share:.0%} of the busiest minute, which comes "
                "before pods that start for it are ready."
            )
        else:
            yield f"{known}. {path} is for the mean load, and enough for what comes before new pods are ready."
