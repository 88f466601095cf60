"""The share of the recent time that work takes."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.router.busy import RECENT_S, Busy


class Clock:
    now = 5.0

    def __call__(self) -> float:
        return self.now


@settings(max_examples=20)
@given(st.floats(0.01, 2), st.floats(0.01, 0.2))
def test_steady_work_is_as_much_as_there_is_time_for(share: float, period: float) -> None:
    worked = Busy(clock := Clock())
    assert worked.share == 0
    for _ in range(math.ceil(10 * RECENT_S / period)):
        worked.add(share * period)
        clock.now += period
    assert worked.share == pytest.approx(share, rel=period / RECENT_S + 0.001)
