"""The verdicts of the benchmark, judged by measurements."""

from statistics import median

import pytest

from benchmarks.advise.measured import LOADS, LONG
from benchmarks.advise.predicted import Times, predicted
from benchmarks.advise.verdicts import Pair, pairs
from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.errors import ERRORS
from pdinference_advise.advice.verdict import Answer


def times(whole: float) -> Times:
    return Times((0, 0), (0, 0), 0, whole)


def test_a_pair_is_one_load_both_ways_in_one_series() -> None:
    found = list(pairs({load: times(load.whole) for load in LOADS}))
    assert len(found) == 39
    assert {pair.together.way for pair in found} == {"co-located"}
    assert {pair.split.way for pair in found} == {"NVLink", "TCP"}, "advise has rows with Adaptive as hints"
    assert {pair.judged for pair in found} == {"right"}


def test_adaptive_is_predicted_within_the_stated_errors() -> None:
    """Medians over its loads, as the errors of others. Nothing was fitted to these measurements."""
    loads = [load for load in LOADS if load.way == "Adaptive"]
    errors = [
        [abs(found / real - 1) for found, real in zip(predicted(load).flat, load.flat, strict=True) if real]
        for load in loads
    ]
    of = ERRORS[TimeSource.INTERPOLATED]
    stated = (of.ttft_p50, of.ttft_p99, of.tpot_p50, of.tpot_p99, of.gap_p99, of.whole_p50)
    medians = [median(column) for column in zip(*errors, strict=True)]
    assert len(loads) == 6
    assert [found <= most for found, most in zip(medians, stated, strict=True)] == [True] * 6, medians


@pytest.mark.parametrize(
    ("predicted", "verdict", "judged"),
    [
        ((12000, 25000), Answer.TOGETHER, "right"),
        ((25000, 12000), Answer.SPLIT, "wrong"),
        ((12000, 12500), Answer.CLOSE, "undecided"),
    ],
)
def test_a_verdict_is_judged_by_the_faster_mode(predicted: tuple[float, float], verdict: Answer, judged: str) -> None:
    split, together = LONG
    pair = Pair(together, split, predicted)
    assert (pair.verdict, pair.judged, pair.kind) == (verdict, judged, "held out")
