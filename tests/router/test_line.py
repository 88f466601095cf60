"""A line that follows what is observed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.router.line import Line


def fitted(fixed: float, each: float, *, noise: float = 0.0, seed: int = 1) -> Line:
    chance, line = random.Random(seed), Line()  # noqa: S311 - a test
    for _ in range(200):
        units = chance.uniform(10, 4000)
        line.observe(units, (fixed + each * units) * (1 + chance.uniform(-noise, noise)))
    return line


@given(st.floats(0, 1), st.floats(1e-6, 1e-2))
def test_a_line_is_found(fixed: float, each: float) -> None:
    line = fitted(fixed, each)
    assert line.at(2000) == pytest.approx(fixed + each * 2000, rel=0.01, abs=1e-6)
    assert line.at(10) == pytest.approx(fixed + each * 10, rel=0.05, abs=1e-3)


def test_one_far_off_observation_changes_little() -> None:
    """A kernel that is compiled, or a pod that hangs for a minute."""
    line = fitted(0.02, 25e-6, noise=0.1)
    before = line.at(1000)
    line.observe(1000, 60.0)
    assert line.at(1000) == pytest.approx(before, rel=0.1)


def test_a_change_that_stays_is_learned() -> None:
    line = fitted(0.02, 25e-6, noise=0.1)
    chance = random.Random(2)  # noqa: S311 - a test
    for _ in range(300):
        units = chance.uniform(10, 4000)
        line.observe(units, 2 * (0.02 + 25e-6 * units))
    assert line.at(2000) == pytest.approx(0.14, rel=0.1)


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=60), st.floats(0, 1e9))
def test_no_observation_makes_a_time_negative_or_infinite(found: list[tuple[float, float]], units: float) -> None:
    line = Line()
    for one in found:
        line.observe(*one)
    fixed, each = line.fitted()
    assert fixed >= 0
    assert each >= 0
    assert line.at(0) < float("inf")


def through_origin(units: float, seconds: float) -> Line:
    line = Line(from_origin=True)
    for _ in range(20):
        line.observe(units, seconds)
    return line


def test_observations_of_one_length_have_no_slope_before_there_are_others() -> None:
    line = Line()
    for _ in range(20):
        line.observe(100, 0.5)
    assert line.fitted() == pytest.approx((0.5, 0))
    assert through_origin(100, 0.5).fitted() == pytest.approx((0, 0.005))


@pytest.mark.parametrize("units", [300, 4000])
def test_a_line_is_taken_for_another_one_as_far_as_it_knows_less(units: float) -> None:
    """A few observations of one length say how far it is off there, and nothing of other lengths."""
    other = fitted(0.02, 25e-6)
    line = Line(other)
    assert line.fitted() == pytest.approx(other.fitted())
    for _ in range(3):
        line.observe(units, other.at(units))
    assert line.at(2000) == pytest.approx(other.at(2000), rel=0.01)
    for _ in range(200):
        line.observe(units, 2 * other.at(units))
    assert line.at(units) == pytest.approx(2 * other.at(units), rel=0.05)


def test_a_line_that_observed_nothing_for_long_is_taken_for_the_other_one_again() -> None:
    other = fitted(0.02, 25e-6)
    line = Line(other)
    for _ in range(5):
        line.observe(1000, 1.0)
    assert line.at(1000) > 0.5
    for times in (400, 100_000):
        for _ in range(times):
            line.forget()
        assert line.at(1000) == pytest.approx(other.at(1000), rel=0.05)


def test_a_line_that_is_like_no_other_one_is_never_forgotten() -> None:
    line = fitted(0.02, 25e-6)
    for _ in range(100_000):
        line.forget()
    assert line.fitted() == pytest.approx((0.02, 25e-6), rel=0.01)
