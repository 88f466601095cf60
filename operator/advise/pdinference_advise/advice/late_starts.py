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

from pdinference.api.names import Role
from pdinference.planning.scaling.presets import PRESETS
from pdinference_advise.advice.workload.trace import Trace

_STEP_S: Final = 15.0
"""How often an HPA looks (--horizontal-pod-autoscaler-sync-period)."""
_LONGEST_S: Final = 3600
_SEEN_STEPS: Final = 4
"""A load is the mean of a minute: a queue of that length is no late start."""
_SIGMAS: Final = 4.0
"""Of the deviation by chance. A day has 5,760 steps, so that three would be exceeded some times a day."""


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
        return cls(dict.fromkeys((Role.PARAMETER, Role.DECODE), seconds), "--start")

    @classmethod
    def of_status(cls, status: Any) -> "Starts":
        """Those that the operator has measured. A file may hold anything there: what is no number is not known."""
        found: dict[Role, float] = {}
        for role in (Role.PARAMETER, Role.DECODE):
            typical = _at(status, "roles", role.value, "start", "typicalSeconds")
            if isinstance(typical, int) and not isinstance(typical, bool) and 0 <= typical <= _LONGEST_S:
                found[role] = float(typical)
        return cls(found, "status.roles of the file")


UNKNOWN: Final = Starts({}, "")


def least_share(load: Trace, role: Role, seconds: float) -> float | None:
    """The share of the busiest minute for which replicas have to be there before.

    A minute has come too early if its tokens are more than the replicas of that time bear, by more than chance.
    Requests come at random, so their tokens vary by the root of the sum of their squares (a compound Poisson process).

    Args:
        load: Requests, whose tokens count.
        role: Whose preset scales: its target and how long it waits until it removes pods.
        seconds: How long a pod takes to start.

    Returns:
        0 if pods that start for a rise are always there in time, None if the load is too short to tell.
    """
    preset = PRESETS[role]
    free = max(preset.targets.values()) / 1000
    kept = int(preset.behavior["scaleDown"]["stabilizationWindowSeconds"] / _STEP_S)
    late = math.ceil(seconds / _STEP_S)
    minutes = list(_minutes(load))
    if len(minutes) <= late + 1:
        return None
    tokens = [each for each, _ in minutes]
    given = _most_of_last(tokens, kept + 1)
    too_late = (
        each
        for (each, chance), then in zip(minutes[late:], given, strict=False)
        if (each - _SIGMAS * chance) * free > then
    )
    return max(too_late, default=0.0) / max(1.0, *tokens)


def _minutes(load: Trace) -> Iterator[tuple[float, float]]:
    """Tokens of each minute of a load, a value for each step, and the deviation that chance gives them."""
    steps = math.ceil(load.seconds / _STEP_S)
    tokens, squares = [0] * steps, [0] * steps
    for arrival in load.arrivals:
        step, number = min(int(arrival.at // _STEP_S), steps - 1), arrival.prompt + arrival.answer
        tokens[step] += number
        squares[step] += number**2
    sums, of_squares = ([0, *accumulate(each)] for each in (tokens, squares))
    for end in range(_SEEN_STEPS, steps + 1):
        begin = end - _SEEN_STEPS
        yield float(sums[end] - sums[begin]), math.sqrt(of_squares[end] - of_squares[begin])


def _most_of_last(values: Sequence[float], number: int) -> Iterator[float]:
    """At each place, the largest of so many values up to there."""
    falling: deque[int] = deque()
    for place, value in enumerate(values):
        while falling and values[falling[-1]] <= value:
            falling.pop()
        falling.append(place)
        if falling[0] <= place - number:
            falling.popleft()
        yield values[falling[0]]


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
            yield f"{known}. {path} is for the mean load: this load is too short to show how fast it rises."
        elif share > mean:
            yield (
                f"{known}, and the load rises faster: {path} is for {share:.0%} of the busiest minute, which comes "
                "before pods that start for it are ready."
            )
        else:
            yield f"{known}. {path} is for the mean load, and enough for what comes before new pods are ready."


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
