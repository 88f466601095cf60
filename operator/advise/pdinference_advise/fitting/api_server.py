"""CPU time of an API server, from what it did in the windows of a measurement. Pure.

As in `fitting.py`, a weak prior keeps a time that the windows do not determine at the built-in one.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pdinference.performance.service import SERVICE
from pdinference_advise.fitting.least_squares import Vector, least_squares
from pdinference_advise.fitting.measurement import ServerWindow

_MERGED: Final = 0.98
"""Events for a token below which an API server wrote several tokens into one event, because it was behind."""
_FEWEST: Final = 3
_NOISE: Final = 0.02
_PRIOR: Final = 1.5
_BOUNDS: Final = (-12.0, 12.0)


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """CPU seconds of an API server.

    Attributes:
        request: Of a short request: HTTP, parsing, the way to the engine, and the end of the stream.
        step: Of each step of the engine, besides its tokens.
        token: Of each token, if it is an event of its own.
    """

    request: float
    step: float
    token: float


_BUILT_IN: Final = ServerTimes(SERVICE.request_cpu, SERVICE.step_out, SERVICE.token_out)


def server_times(windows: Iterable[ServerWindow]) -> ServerTimes | None:
    """CPU times that come nearest to the windows in which the API server kept up; None if these are too few."""
    kept_up = [each for each in windows if each.cores > 0 and each.events >= _MERGED * each.tokens]
    if len(kept_up) < _FEWEST:
        return None

    def times_at(at: Vector) -> ServerTimes:
        request, step, token = map(math.exp, at)
        return ServerTimes(_BUILT_IN.request * request, _BUILT_IN.step * step, _BUILT_IN.token * token)

    def residuals(at: Vector) -> Vector:
        errors = [math.log(_cores(each, times_at(at)) / each.cores) / _NOISE for each in kept_up]
        return [*errors, *(x / _PRIOR for x in at)]

    return times_at(least_squares(residuals, [0.0, 0.0, 0.0], [_BOUNDS] * 3).at)


def _cores(window: ServerWindow, times: ServerTimes) -> float:
    return window.requests * times.request + window.steps * times.step + window.tokens * times.token
