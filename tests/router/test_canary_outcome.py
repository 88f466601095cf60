"""What answers show, whatever they are."""

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from pdinference.api.names import Verification
from pdinference.router.canary_outcome import CanaryOutcome, Distribution, distance, judged

LIMIT = 0.15


@st.composite
def answers(draw: st.DrawFn) -> Distribution:
    weights = draw(st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 1), min_size=1))
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


ANSWER = answers()
MAYBE = st.one_of(st.none(), ANSWER)


@given(ANSWER, ANSWER)
def test_the_distance_is_from_0_to_1_and_the_same_both_ways(one: Distribution, other: Distribution) -> None:
    found = distance(one, other)
    assert -1e-9 <= found <= 1 + 1e-9
    assert math.isclose(found, distance(other, one), abs_tol=1e-9)
    assert distance(one, one) == 0
    if not one.keys() & other.keys():
        assert math.isclose(found, 1)


@given(ANSWER, ANSWER, ANSWER)
def test_no_detour_is_shorter(one: Distribution, other: Distribution, third: Distribution) -> None:
    assert distance(one, third) <= distance(one, other) + distance(other, third) + 1e-9


@given(MAYBE)
def test_the_distance_from_an_unknown_answer_is_unknown(one: Distribution | None) -> None:
    assert math.isnan(distance(one, None))
    assert math.isnan(distance(None, one))


ARRIVED = st.sampled_from([True, False, None])


@given(st.tuples(MAYBE, MAYBE), st.tuples(MAYBE, MAYBE), ARRIVED)
def test_the_outcome_follows_from_the_larger_distance_and_then_from_counters(
    through: tuple[Distribution | None, ...], alone: tuple[Distribution | None, ...], arrived: bool | None
) -> None:
    found = judged(10, through, alone, arrived=arrived)
    known = [distance(one, other) for one, other in zip(through, alone, strict=True) if one and other]
    assert (found.tokens, found.limit, found.by_parameter) == (10, LIMIT, False)
    if not known:
        assert math.isnan(found.distance)
    else:
        assert found.distance == max(known)
    if known and max(known) > LIMIT:
        assert found.state is Verification.WRONG_ANSWER
    else:
        of_counters = {
            True: Verification.VERIFIED,
            False: Verification.COMPUTED_BY_DECODE,
            None: Verification.NOT_APPLICABLE,
        }
        assert found.state is of_counters[arrived]


@given(ANSWER, ANSWER, ANSWER, ARRIVED)
def test_an_answer_without_probabilities_hides_no_wrong_one(
    right: Distribution, wrong: Distribution, other: Distribution, arrived: bool | None
) -> None:
    assume(distance(wrong, right) > LIMIT)
    for through, alone in (([None, wrong], [other, right]), ([wrong, None], [right, other])):
        found = judged(10, through, alone, arrived=arrived)
        assert (found.state, found.distance) == (Verification.WRONG_ANSWER, distance(wrong, right))


@given(ANSWER, ANSWER)
def test_answers_that_are_alike_are_said_to_show_nothing(one: Distribution, other: Distribution) -> None:
    found = judged(10, [one, other], [one, other], arrived=True)
    assert found.state is Verification.VERIFIED
    assert ("counters decide" in found.reason) == (distance(one, other) < 2 * LIMIT)


@given(st.sampled_from(Verification))
def test_what_rounding_or_other_routers_can_cause_is_confirmed(state: Verification) -> None:
    chance = {Verification.WRONG_ANSWER, Verification.COMPUTED_BY_DECODE}
    assert CanaryOutcome(state, "").may_be_chance == (state in chance)
