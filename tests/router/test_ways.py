"""The cost of each way: what makes one cheaper than the others."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Role
from pdinference.router.pod import Observed, Pod
from pdinference.router.ways import FIRST, Place, Prediction, RoleTimes, Way, WayObjectives, WayTimes, cheapest_first

ROLE = RoleTimes(request=0.003, token=25e-6, step=0.007, answer=0.00004, step_tokens=512)
TIMES = WayTimes(ROLE, ROLE, hand_over=0.017, moved_token=2e-6, join=0.007)
"""Of an H100 with a model of 8B, about."""


def pod(name: str, role: Role, group: str = "") -> Pod:
    return Pod(Observed(name, name, role, name, ready=True, group=group))


P, D = pod("p", Role.PARAMETER), pod("d", Role.DECODE)


def place(of: Pod, uncached: float, *, answers: float = 0, ahead: float = 0, busy: float = 0) -> Place:
    return Place(of, answers, ahead, uncached, busy)


def best(parameter: list[Place], decode: list[Place], answer: float = 200) -> Prediction:
    return cheapest_first(answer, parameter, decode, TIMES)[0]


def test_a_short_prompt_goes_to_d_and_a_long_one_through_p_while_d_has_answers() -> None:
    short, long = ([place(P, n, busy=0.5)] for n in (100, 12_000))
    assert best(short, [place(D, 100, answers=18)], answer=3000).way is Way.DECODE
    assert best(long, [place(D, 12_000, answers=18)], answer=3000).way is Way.SPLIT


def test_an_idle_d_computes_a_long_prompt_itself() -> None:
    found = best([place(P, 12_000, busy=0.3)], [place(D, 12_000)])
    assert found.way is Way.DECODE
    assert found.first_token == pytest.approx(0.003 + 0.3)


def test_kv_cache_that_arrives_waits_for_the_prompts_that_d_computes_itself() -> None:
    """They take all tokens of its steps."""
    free, late = (
        cheapest_first(200, [place(P, 4000)], [place(D, 4000, ahead=ahead)], TIMES, ways={Way.SPLIT})[0]
        for ahead in (0, 10)
    )
    assert late.first_token == pytest.approx(free.first_token + 10)


def test_a_later_turn_goes_to_the_d_that_has_the_conversation() -> None:
    other = pod("d2", Role.DECODE)
    found = best([place(P, 4000)], [place(D, 4000, answers=5), place(other, 150, answers=8)])
    assert (found.way, found.pod) == (Way.DECODE, other)


def test_p_answers_while_d_is_busy_and_p_is_not() -> None:
    """Steps of D are long because of its many answers; a P pod with prompts all the time would be slower."""
    decode = [place(D, 500, answers=100)]
    assert best([place(P, 500, answers=50, busy=0.05)], decode, answer=1500).way is Way.PARAMETER
    assert best([place(P, 500, answers=50, busy=0.85)], decode, answer=1500).way is not Way.PARAMETER


def test_a_queue_at_p_lets_d_compute() -> None:
    decode = [place(D, 2000, answers=6)]
    assert best([place(P, 2000, busy=0.1)], decode).way is Way.PARAMETER
    assert best([place(P, 2000, ahead=1.5, busy=0.9)], decode).way is Way.DECODE


def test_prompts_at_d_make_answers_there_slower_whoever_computed_their_own() -> None:
    """A D pod that computes prompts half of its time is no better a reader than one that has more answers."""

    def split(reader: Place) -> float:
        return cheapest_first(1000, [place(P, 500)], [reader], TIMES, ways={Way.SPLIT})[0].cost

    assert split(place(D, 500, busy=0.5)) > split(place(D, 500, answers=10))


def test_a_part_of_a_prompt_in_a_step_costs_answers_what_it_makes_the_step_longer() -> None:
    """A step of 7 ms has the first 280 tokens of a prompt for nothing at 25 us each; 512 make it 5.8 ms longer."""
    idle, busy = (cheapest_first(0, [], [place(D, 512, answers=n)], TIMES)[0] for n in (0, 10))
    waits = FIRST * (busy.first_token - idle.first_token)
    longer = 512 * 25e-6 - 0.007
    assert busy.cost - idle.cost - waits == pytest.approx(10 * longer * (1 + longer / (0.007 + 10 * 0.00004)))


def test_only_ways_that_are_allowed_and_links_that_exist() -> None:
    parameter, decode = [place(pod("a/p", Role.PARAMETER, "a"), 10)], [place(pod("b/d", Role.DECODE, "b"), 10)]
    assert {one.way for one in cheapest_first(10, parameter, decode, TIMES)} == {Way.DECODE, Way.PARAMETER}
    assert cheapest_first(10, parameter, decode, TIMES, ways={Way.SPLIT}) == []
    assert [one.way for one in cheapest_first(10, [place(P, 10)], [place(D, 10)], TIMES, ways={Way.SPLIT})] == [
        Way.SPLIT
    ]
    every = cheapest_first(10, [place(P, 10), place(P, 20)], [place(D, 30)], TIMES)
    assert [(one.way, one.uncached) for one in every] == [(Way.PARAMETER, 10), (Way.DECODE, 30), (Way.SPLIT, 10)]


PLACES = st.builds(
    Place,
    st.just(D),
    answers=st.floats(0, 500),
    ahead=st.floats(0, 1e3),
    uncached=st.floats(1, 1e6),
    busy=st.floats(0, 1),
)


@given(PLACES, st.floats(1, 1e5), st.sampled_from(["answers", "ahead", "uncached", "busy"]))
def test_more_to_do_never_costs_less(decode: Place, answer: float, what: str) -> None:
    more = msgspec.structs.replace(decode, **{what: getattr(decode, what) * 1.5})
    for way, places in (
        (Way.DECODE, ([], [decode], [more])),
        (Way.SPLIT, ([msgspec.structs.replace(decode, pod=P)], [decode], [more])),
    ):
        less_to_do, more_to_do = (
            cheapest_first(answer, places[0], list(each), TIMES, ways={way})[0] for each in (places[1], places[2])
        )
        assert more_to_do.cost >= less_to_do.cost
        assert more_to_do.first_token >= less_to_do.first_token


def test_the_cheapest_way_that_keeps_the_objectives_is_taken() -> None:
    parameter, decode = [place(P, 4000, ahead=0.2)], [place(D, 4000, answers=60)]
    cheapest, *others = cheapest_first(800, parameter, decode, TIMES)
    (first, _) = min((one.first_token, one.way) for one in others)
    assert first < cheapest.first_token

    def taken(**objectives: float) -> Way:
        return cheapest_first(800, parameter, decode, TIMES, objectives=WayObjectives(**objectives))[0].way

    assert taken(ttft=10) == cheapest.way
    assert taken(ttft=1.1 * first / 0.8) != cheapest.way
    assert taken(ttft=first / 100) == cheapest.way, "no way keeps it"
