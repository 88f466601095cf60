"""CPU time of an API server, from what it did in the windows of a measurement. Pure.

As in `fitting.py`, a weak prior keeps a time that the windows do not determine at the built-in one. In what share a
token's time is that of its event shows only where the server was behind and wrote several tokens as one event.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pdinference.performance.least_squares import Vector, least_squares
from pdinference.performance.measurement import ServerWindow
from pdinference.performance.service import SERVICE

_FEWEST: Final = 3
_NOISE: Final = 0.02
_PRIOR: Final = 1.5
_BOUNDS: Final = (-12.0, 12.0)
_TYPICAL_STEP_S: Final = 0.0004


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """CPU seconds of an API server.

    Attributes:
        request: Of a short request: HTTP, parsing, the way to the engine, and the end of the stream.
        step: Of each step of the engine, whatever it gives.
        token: Of each token, without its event.
        event: Of each event of a stream.
    """

    request: float
    step: float
    token: float
    event: float


_BUILT_IN: Final = ServerTimes(
    SERVICE.request_cpu,
    SERVICE.step_out or _TYPICAL_STEP_S,
    SERVICE.token_merged,
    SERVICE.token_out - SERVICE.token_merged,
)


def server_times(windows: Iterable[ServerWindow]) -> ServerTimes | None:
    """CPU times that come nearest to the windows; None if these are too few."""
    used = [each for each in windows if each.cores > 0]
    if len(used) < _FEWEST:
        return None

    def residuals(at: Vector) -> Vector:
        errors = [math.log(_cores(each, _times_at(at)) / each.cores) / _NOISE for each in used]
        return [*errors, *(x / _PRIOR for x in at)]

    return _times_at(least_squares(residuals, [0.0] * 4, [_BOUNDS] * 4).at)


def _times_at(at: Vector) -> ServerTimes:
    request, step, token, event = map(math.exp, at)
    return ServerTimes(
        _BUILT_IN.request * request, _BUILT_IN.step * step, _BUILT_IN.token * token, _BUILT_IN.event * event
    )


def _cores(window: ServerWindow, times: ServerTimes) -> float:
    events = min(window.events, window.tokens)
    beside = window.requests * times.request + window.steps * times.step
    return beside + window.tokens * times.token + events * times.event
