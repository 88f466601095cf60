"""The verdicts of the benchmark, judged by measurements."""

import pytest

from benchmarks.advise.measured import LOADS, LONG
from benchmarks.advise.predicted import Times
from benchmarks.advise.verdicts import Pair, pairs
from pdinference_advise.advice.verdict import Answer


def times(whole: float) -> Times:
    return Times((0, 0), (0, 0), 0, whole)


def test_a_pair_is_one_load_both_ways_in_one_series() -> None:
    found = list(pairs({load: times(load.whole) for load in LOADS}))
    assert len(found) == 33
    assert all(pair.together.way == "co-located" != pair.split.way for pair in found)
    assert {pair.judged for pair in found} == {"right"}


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
