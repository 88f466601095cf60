"""The expected load: steady rises are followed, everything else is left as it is."""

import random
from itertools import count, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.planning.scaling.look_ahead import WINDOW_S, Load, expected

START_S = 90.0
TIMES = [10.0 * step for step in range(31)]


def loads(*values: float) -> list[Load]:
    return list(zip(TIMES, values, strict=False))


def rising(slope: float, noise: float = 0.0, base: float = 2.0) -> list[Load]:
    """Loads of a window that rise by so much in a second."""
    random.seed(7)
    return [(at, base + slope * at + random.uniform(-noise, noise)) for at in TIMES]  # noqa: S311 - no secret


def test_a_steady_rise_is_followed_for_as_long_as_a_start_takes() -> None:
    assert expected(rising(0.005), START_S) == pytest.approx(2 + 0.005 * (WINDOW_S + START_S))
    assert expected(rising(0.005), 0) == pytest.approx(2 + 0.005 * WINDOW_S)


def test_noise_around_a_rise_does_not_hide_it() -> None:
    assert expected(rising(0.005, noise=0.3), START_S) == pytest.approx(2 + 0.005 * (WINDOW_S + START_S), abs=0.2)


@pytest.mark.parametrize(
    "seen",
    [
        [(0.0, 3.0)],
        rising(0.005)[:20],
        [(at, load) for at, load in rising(0.005) if at in {0, 100, 200, 300}],
        rising(0, noise=0.5),
        rising(-0.005),
        loads(*[2.0] * 20, *[6.0] * 11),  # a burst
        loads(*[2.0] * 26, *[8.0] * 5),  # the beginning of one
        loads(*[2 + 0.2 * step for step in range(15)], *[5.0] * 16),  # risen, and stays
    ],
    ids=["alone", "too short", "too few", "noise", "falls", "burst", "begins", "over"],
)
def test_nothing_else_is_taken_for_a_rise(seen: list[Load]) -> None:
    assert expected(seen, START_S) == seen[-1][1]


def test_no_more_than_half_of_the_load_is_added() -> None:
    assert expected(rising(0.05), 600) == pytest.approx(1.5 * (2 + 0.05 * WINDOW_S))


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=40),
    st.floats(1, 60),
    st.floats(0, 1e6),
)
def test_it_is_between_the_load_and_half_more(values: list[float], every: float, start: float) -> None:
    times = takewhile(lambda at: at <= WINDOW_S, count(0.0, every))
    seen = list(zip(times, values, strict=False))
    assert seen[-1][1] <= expected(seen, start) <= 1.5 * seen[-1][1]
