"""The share of the recent time in which something was under way."""

import math
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.router.busy import RECENT_S, Busy


class Clock:
    now = 5.0

    def __call__(self) -> float:
        return self.now


def test_activities_that_overlap_count_once() -> None:
    busy = Busy(clock := Clock())
    with ExitStack() as stack:
        stack.enter_context(busy.one())
        stack.enter_context(busy.one())
        clock.now += RECENT_S
        assert busy.share == pytest.approx(1 - 1 / math.e)
    clock.now += RECENT_S
    assert busy.share == pytest.approx((1 - 1 / math.e) / math.e)


@settings(max_examples=20)
@given(st.floats(0.01, 0.99), st.floats(0.01, 0.2))
def test_it_becomes_the_share_of_a_steady_activity(share: float, period: float) -> None:
    busy = Busy(clock := Clock())
    for _ in range(math.ceil(10 * RECENT_S / period)):
        with busy.one():
            clock.now += share * period
        clock.now += (1 - share) * period
    assert busy.share == pytest.approx(share, abs=period / RECENT_S)


@settings(max_examples=20)
@given(st.floats(0.01, 2), st.floats(0.01, 0.2))
def test_steady_work_is_as_much_as_there_is_time_for(share: float, period: float) -> None:
    worked = Busy(clock := Clock())
    assert worked.share == 0
    for _ in range(math.ceil(10 * RECENT_S / period)):
        worked.add(share * period)
        clock.now += period
    assert worked.share == pytest.approx(share, rel=period / RECENT_S + 0.001)
