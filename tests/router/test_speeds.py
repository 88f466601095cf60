"""What the router learns of its pods from the times of requests."""

import msgspec
import pytest

from pdinference.api.names import Role
from pdinference.router.speeds import Speeds
from pdinference.router.ways import MISSED_STEPS

P, D = Role.PARAMETER, Role.DECODE


def known(speeds: Speeds) -> None:
    for tokens in (100, 500, 1000, 2000, 4000):
        speeds.prompts[P].observe(tokens, 0.01 + tokens * 25e-6)
        speeds.hand_overs.observe(tokens, 0.02)
        speeds.steps[D].observe(tokens / 100, 0.007 + tokens * 1e-6)


def test_nothing_is_predicted_before_requests_went_through_p_and_d() -> None:
    speeds = Speeds()
    assert not speeds.are_known
    known(speeds)
    assert speeds.are_known
    assert speeds.of(P).token == pytest.approx(25e-6, rel=0.05)
    assert speeds.of(P).request == pytest.approx(0.01, rel=0.35)
    assert speeds.times.hand_over == pytest.approx(0.02)
    assert speeds.step(D, 10) == pytest.approx(0.008)


def test_what_a_role_has_not_done_yet_takes_as_long_as_in_the_other_one() -> None:
    speeds = Speeds()
    known(speeds)
    assert msgspec.structs.astuple(speeds.of(P)) == pytest.approx(msgspec.structs.astuple(speeds.of(D)))
    for tokens in (100, 500, 1000, 2000, 4000) * 20:
        speeds.computed(D, tokens, 0, tokens * 50e-6)
    assert speeds.times.decode.token == pytest.approx(50e-6, rel=0.05)
    assert speeds.times.parameter.token == pytest.approx(25e-6, rel=0.15)


def test_a_role_that_looked_slow_once_is_tried_again() -> None:
    """Its first prompts compiled kernels. Then it got none, so nothing showed that it is as fast as the other one."""
    speeds = Speeds()
    known(speeds)
    for _ in range(5):
        speeds.computed(D, 300, 0, 5.0)
    slow = speeds.of(D).request
    for _ in range(500):
        speeds.computed(P, 300, 0, 0.01 + 300 * 25e-6)
    assert slow > 1
    now, other = (msgspec.structs.astuple(speeds.of(role)) for role in (D, P))
    assert now == pytest.approx(other, rel=0.1, abs=1e-3)


def test_bytes_of_a_token_and_lengths_of_answers_are_learned() -> None:
    speeds = Speeds()
    for _ in range(300):
        speeds.ended(size=1200, prompt=400, answer=250)
        speeds.ended(size=1200, prompt=0, answer=0)  # an answer that says nothing of them
    assert speeds.bytes_per_token == pytest.approx(3, rel=0.01)
    speeds.ended(size=8, prompt=30, answer=250)  # the chat template has most of a short prompt's tokens
    speeds.ended(size=0, prompt=400, answer=250)  # it is not known
    assert speeds.bytes_per_token == pytest.approx(3, rel=0.01)
    assert speeds.answer.at(0) == pytest.approx(250)


def test_answers_that_are_no_streams_show_steps_and_hand_overs_by_their_lengths() -> None:
    speeds = Speeds()
    for number in range(200):
        tokens, answer = 100.0 * (number % 7), 20 + 40 * (number % 5)
        speeds.computed(P, tokens, 0, 0.01 + tokens * 25e-6)
        speeds.handed_over_whole(tokens, 4, answer, 0.05 + answer * 0.008)
    assert speeds.are_known
    assert speeds.step(D, 4) == pytest.approx(0.008, rel=0.05)
    assert speeds.times.hand_over + MISSED_STEPS * 0.008 == pytest.approx(0.05, rel=0.1)


def test_answers_of_one_length_that_are_no_streams_count_as_steps_alone() -> None:
    speeds = Speeds()
    for _ in range(20):
        speeds.handed_over_whole(500, 4, 100, 0.9)
    assert speeds.step(D, 4) == pytest.approx(0.009, rel=0.05)
    assert speeds.times.hand_over == pytest.approx(0, abs=1e-3)
