"""The error band of an answer against the errors of the predictions."""

from statistics import median

import pytest

from benchmarks.advise.errors import METRICS
from benchmarks.advise.measured import LOADS, Load
from benchmarks.advise.predicted import Times, predicted
from benchmarks.advise.shapes import Row, built_in, errors_of, measurement, rows
from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.errors import ERRORS, band_of

UNSEEN = [load for load in LOADS if not (load.fitted or load.saturated)]


@pytest.fixture(scope="module", name="predictions")
def all_predictions() -> list[tuple[Load, Times]]:
    return [(load, predicted(load)) for load in UNSEEN]


def _median_error(pairs: list[tuple[float, float | None]]) -> float:
    return median(abs(found / real - 1) for found, real in pairs if real is not None)


def test_the_stated_errors_are_no_smaller_than_those_of_loads_that_nothing_was_fitted_to(
    predictions: list[tuple[Load, Times]],
) -> None:
    assert len(predictions) >= 10
    of = ERRORS[TimeSource.MEASURED]
    assert _median_error([(times.ttft[0], load.ttft[0]) for load, times in predictions]) <= of.ttft_p50
    assert _median_error([(times.ttft[1], load.ttft[1]) for load, times in predictions]) <= of.ttft_p99
    assert _median_error([(times.tpot[0], load.tpot[0]) for load, times in predictions]) <= of.tpot_p50
    assert _median_error([(times.tpot[1], load.tpot[1]) for load, times in predictions]) <= of.tpot_p99
    assert _median_error([(times.gap, load.gap) for load, times in predictions]) <= of.gap_p99
    assert _median_error([(times.whole, load.whole) for load, times in predictions]) <= of.whole_p50


@pytest.fixture(scope="module", name="shapes")
def all_shapes() -> list[Row]:
    return list(rows())


@pytest.mark.parametrize(
    ("shape", "calibration", "source", "mixture"),
    [
        ("qwen-14b", "built in", TimeSource.INTERPOLATED, False),
        ("qwen-14b", "own", TimeSource.INTERPOLATED, False),
        ("qwen-30b-a3b", "built in", TimeSource.EXTRAPOLATED, True),
        ("qwen-30b-a3b", "own", TimeSource.INTERPOLATED, True),
    ],
)
def test_the_stated_errors_are_no_smaller_than_those_of_other_shapes(
    shapes: list[Row], shape: str, calibration: str, source: TimeSource, *, mixture: bool
) -> None:
    of = band_of(source, mixture=mixture)
    stated = (of.ttft_p50, of.ttft_p99, of.tpot_p50, of.tpot_p99, of.gap_p99, of.whole_p50)
    found = errors_of(row for row in shapes if row.shape == shape and row.calibration == calibration)
    for name, errors, most in zip(METRICS, found, stated, strict=True):
        assert median(errors) <= most, name


def test_dummy_weights_route_to_as_many_experts_as_uniform_routing() -> None:
    """Steps of 1 to 128 requests read 8 to all 128 experts: alike routing would make them up to four times faster."""
    steps = built_in("qwen-30b-a3b")
    decode = [point for point in measurement("qwen-30b-a3b").points if point.kind == "decode"]
    assert {point.running for point in decode} == {1, 4, 8, 16, 32, 64, 128}
    for point in decode:
        assert steps.decode_step(point.running, point.context) == pytest.approx(point.seconds, rel=0.04)


def test_an_extrapolated_answer_states_a_larger_error() -> None:
    measured, other = ERRORS[TimeSource.MEASURED], ERRORS[TimeSource.EXTRAPOLATED]
    assert other.ttft(50) > measured.ttft(50)
    assert other.tpot(99) > measured.tpot(99)
