"""Fits a calibration to measured times of steps. Pure.

Parameters are fitted as logarithms, so they stay positive and count as relative changes. A weak prior keeps those that
the measurements do not determine at the values of the calibration that is built in: with one dense model, for example,
the time of reading the weights cannot be told from the time of starting kernels. Times of the measured model do not
depend on how the two share it.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from pdinference.performance.calibration import H200, Calibration, TimeSource
from pdinference.performance.devices import Device
from pdinference.performance.step import StepModel
from pdinference.performance.work import Work
from pdinference_advise.fitting.least_squares import Solution, Vector, least_squares
from pdinference_advise.fitting.measurement import Overhead, Point, predicted

TOLERANCE: Final = 0.25
"""A prediction that differs more from its measurement counts against a calibration."""
_FEW: Final = 0.1
"""Share of the times that may. The CPU of the host disturbs single ones of short steps, also on a machine at rest."""
_WORST: Final = 2
"""Times the tolerance: an error that no time may have."""
_NOISE: Final = 0.03
"""Relative error of a measured time."""
_PRIOR: Final = 1.5
"""Standard deviation of the logarithm of a parameter that nothing is known of."""
_SHARES: Final = ("decode_compute", "attention", "weights")
_SECONDS: Final = ("step", "layer", "prefill_layer", "start", "request", "after_prefill", "shortest_step", "launch")
_SHARE_BOUNDS: Final = (1e-6, 1.0)
_SECOND_BOUNDS: Final = (1e-9, 10.0)
_FEWEST: Final = 8
_HELD_OUT_EVERY: Final = 4


class BadFitError(ValueError):
    """The measurements do not determine a calibration, or contradict the model of a step; the message says which."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A measurement and its prediction.

    Attributes:
        point: The measurement.
        predicted: Seconds.
        held_out: Whether the fit did not use it.
    """

    point: Point
    predicted: float
    held_out: bool

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.point.seconds - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """A calibration that was fitted.

    Attributes:
        calibration: The parameters.
        residuals: All measurements with their predictions.
        assumed: Parameters that the measurements hardly determine; they are near those of the built-in calibration.
    """

    calibration: Calibration
    residuals: tuple[Residual, ...]
    assumed: tuple[str, ...]

    @property
    def held_out_error(self) -> float:
        """Median of the absolute errors of the measurements that the fit did not use; not a number without any."""
        errors = [abs(each.error) for each in self.residuals if each.held_out]
        return statistics.median(errors) if errors else math.nan


def fit(
    points: Iterable[Point],
    work: Work,
    device: Device,
    *,
    product: str,
    step_tokens: int,
    tolerance: float = TOLERANCE,
) -> Fit:
    """Fit a calibration. A quarter of the points is held out to judge it.

    Args:
        points: Measured times.
        work: Operations and bytes of the model that was measured.
        device: Peak rates.
        product: Value of the node label.
        step_tokens: `max-num-batched-tokens` of the measurement.
        tolerance: Relative error of a prediction that a tenth of the times may exceed; none may be twice as much.

    Raises:
        BadFitError: There are too few points, or predictions differ too much from their measurements.
    """
    used, held_out = split(points)
    _require(used)
    base = replace(H200, product=product, source=TimeSource.MEASURED)
    of_precision = "compute8" if work.low_precision else "compute", "kv8" if work.kv8 else "kv"
    names = (*of_precision, *_SHARES, *_SECONDS)

    def residuals(at: Vector) -> Vector:
        model = StepModel(work, device, scaled(base, names, at))
        errors = [math.log(predicted(point, model, step_tokens) / point.seconds) / _NOISE for point in used]
        return [*errors, *(x / _PRIOR for x in at)]

    bounds = [_bounds(name, getattr(base, name)) for name in names]
    found = min((least_squares(residuals, start, bounds) for start in _starts(names)), key=_cost)
    calibration = scaled(base, names, found.at)
    model = StepModel(work, device, calibration)
    judged = tuple(
        Residual(point, predicted(point, model, step_tokens), held) for held, some in ((False, used), (True, held_out))
        for point in some
    )  # fmt: skip
    _judge(judged, tolerance)
    assumed = tuple(name for name, spread in zip(names, found.spread, strict=True) if spread > _PRIOR / 2)
    return Fit(calibration, judged, assumed)


def scaled(base: Calibration, names: Iterable[str], logarithms: Vector) -> Calibration:
    """A calibration with some parameters multiplied, each by e to the power of its logarithm."""
    return replace(base, **{n: getattr(base, n) * math.exp(x) for n, x in zip(names, logarithms, strict=True)})


def split(points: Iterable[Point]) -> tuple[list[Point], list[Point]]:
    """Points to fit, and points to judge the fit by, which lie between others of their kind."""
    ordered = sorted(points, key=lambda point: (point.kind, point.context // 1000, point.tokens, point.running))
    used: list[Point] = []
    held_out: list[Point] = []
    for kind in dict.fromkeys(point.kind for point in ordered):
        some = [point for point in ordered if point.kind == kind]
        for index, point in enumerate(some):
            inner = index < len(some) - 1
            (held_out if inner and index % _HELD_OUT_EVERY == _HELD_OUT_EVERY // 2 else used).append(point)
    return used, held_out


def service_of(overheads: Iterable[Overhead]) -> tuple[float, float]:
    """Seconds of a request beside the engine, and those for each prompt token: a line through the overheads.

    Returns:
        Both, at least 0.
    """
    found = list(overheads)
    if len({each.tokens for each in found}) < 2:
        return max(0.0, statistics.fmean(each.seconds for each in found)) if found else 0.0, 0.0
    line = statistics.linear_regression([each.tokens for each in found], [each.seconds for each in found])
    return max(0.0, line.intercept), max(0.0, line.slope)


def _require(points: list[Point]) -> None:
    kinds = {point.kind for point in points}
    missing = [kind for kind in ("prompt", "decode") if kind not in kinds]
    if missing:
        raise BadFitError(f"The measurements have no point of kind {' or '.join(missing)}. Measure again, for longer.")
    if len(points) < _FEWEST:
        raise BadFitError(f"{len(points)} points are too few; a fit needs {_FEWEST}. Measure again, for longer.")


def _bounds(name: str, value: float) -> tuple[float, float]:
    low, high = _SECOND_BOUNDS if name in _SECONDS else _SHARE_BOUNDS
    return math.log(low / value), math.log(high / value)


def _starts(names: Iterable[str]) -> list[Vector]:
    """The built-in values, and devices whose host or memory is slower."""
    shifts = ((0.0, 0.0), (0.0, 2.0), (0.0, 4.0), (-2.0, 2.0))
    return [[seconds if name in _SECONDS else shares for name in names] for shares, seconds in shifts]


def _cost(solution: Solution) -> float:
    return solution.cost


def _judge(residuals: tuple[Residual, ...], tolerance: float) -> None:
    bad = sorted((each for each in residuals if abs(each.error) > tolerance), key=lambda each: -abs(each.error))
    if bad and (abs(bad[0].error) > _WORST * tolerance or len(bad) > _FEW * len(residuals)):
        worst = "; ".join(
            f"{each.point}: measured {1000 * each.point.seconds:.2f} ms, predicted {1000 * each.predicted:.2f}"
            for each in bad[:5]
        )
        raise BadFitError(
            f"{len(bad)} of {len(residuals)} times differ by more than {tolerance:.0%} from the model of a step: "
            f"{worst}. Check that nothing else used the device, and measure again."
        )
