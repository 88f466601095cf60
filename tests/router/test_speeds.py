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


def whole(speeds: Speeds, number: int, answer: int) -> None:
    """P computes a prompt and D answers as a whole: a step takes 8 ms, a hand-over 20 ms and 40 us a token."""
    tokens = 200.0 + 900 * (number % 7)
    speeds.computed(P, tokens, 0, 0.01 + tokens * 25e-6)
    seconds = 0.02 + tokens * 40e-6 + (answer - 1 + MISSED_STEPS) * 0.008
    speeds.handed_over_whole(tokens, 4, answer, seconds)


def test_long_answers_that_are_no_streams_show_steps_alone() -> None:
    speeds = Speeds()
    for number in range(5):
        assert not speeds.are_known
        whole(speeds, number, 300)
    assert speeds.are_known
    assert speeds.step(D, 4) == pytest.approx(0.008, rel=0.08), "the hand-over is taken for steps"
    assert speeds.times.hand_over == 0


def test_an_answer_of_one_token_that_is_no_stream_is_a_first_token() -> None:
    speeds = Speeds()
    known(speeds)
    for number in range(200):
        whole(speeds, number, 1 if number % 2 else 400)
    assert speeds.step(D, 4) == pytest.approx(0.008, rel=0.02)
    assert speeds.times.moved_token == pytest.approx(40e-6, rel=0.05)
    assert speeds.times.hand_over == pytest.approx(0.02, rel=0.1)


def test_short_answers_that_are_no_streams_teach_nothing() -> None:
    speeds = Speeds()
    known(speeds)
    before = speeds.step(D, 4), speeds.times.hand_over
    for number in range(100):
        whole(speeds, number, 2 + number % 20)
    assert (speeds.step(D, 4), speeds.times.hand_over) == before
