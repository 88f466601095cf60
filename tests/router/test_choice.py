"""Which pod gets a request."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Role
from pdinference.api.v1alpha1.router import RouterPolicy
from pdinference.router.calls import Call
from pdinference.router.choice import policies
from pdinference.router.pieces import chain_of
from pdinference.router.pod import Observed, Pod
from tests.router.engines import D, P

NAMES = get_args(RouterPolicy)


class Sent:
    began_at = 0.0
    stream = True
    reads_from = None
    placed = True
    place = 0
    overtaken = False

    def abort(self, reason: str) -> None: ...


def pod(number: int, *, tokens: int = 0, requests: int = 0) -> Pod:
    found = Pod(Observed(f"uid-{number}", f"d-{number}", D, "a:1", ready=True), tokens)
    found.under_way.update(Sent() for _ in range(requests))
    return found


def give(to: Pod, one: Call) -> Sent:
    """Let a pod have a request."""
    sent = Sent()
    to.under_way.add(sent)
    to.prompts[sent] = one.tokens
    to.tokens += one.tokens
    return sent


def call(text: str = "", *, session: str = "") -> Call:
    return Call("/v1/completions", text.encode(), session=session)


_loads = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=6)


@given(_loads, st.sampled_from(NAMES), st.text(max_size=20), st.sampled_from(("", "a", "b")))
def test_each_policy_chooses_one_of_the_pods(
    loads: Sequence[tuple[int, int]], name: str, text: str, session: str
) -> None:
    pods = [pod(number, tokens=tokens, requests=requests) for number, (tokens, requests) in enumerate(loads)]
    for choose in policies(name).values():
        assert choose(pods, call(text, session=session)) in pods


@given(_loads)
def test_least_loaded_counts_tokens_in_p_and_requests_in_d(loads: Sequence[tuple[int, int]]) -> None:
    pods = [pod(number, tokens=tokens, requests=requests) for number, (tokens, requests) in enumerate(loads)]
    choose = policies("least_loaded")
    assert choose[P](pods, call()).tokens == min(tokens for tokens, _ in loads)
    assert choose[D](pods, call()).requests == min(requests for _, requests in loads)


@pytest.mark.parametrize("role", [P, D])
async def test_equal_pods_take_turns(role: Role) -> None:
    """The one whose last request is the oldest ends first if all requests are alike."""
    pods = [pod(number) for number in range(3)]
    choose = policies("least_loaded")[role]
    found = []
    with ExitStack() as stack:
        for _ in range(9):
            chosen = choose(pods, call())
            stack.enter_context(chosen.sending(Sent(), 10))
            found.append(chosen.observed.name)
    assert found == ["d-0", "d-1", "d-2"] * 3


def test_round_robin_takes_turns() -> None:
    pods = [pod(number) for number in range(3)]
    choose = policies("round_robin")[D]
    assert Counter(choose(pods, call()).observed.name for _ in range(9)) == {"d-0": 3, "d-1": 3, "d-2": 3}


@given(st.integers(2, 6), st.text(min_size=1, max_size=9), st.data())
def test_a_session_stays_unless_its_own_pod_goes(count: int, session: str, data: st.DataObject) -> None:
    pods = [pod(number) for number in range(count)]
    choose = policies("consistent_hash")[D]
    before = choose(pods, call("a", session=session))
    assert choose(pods, call("b", session=session)) is before
    gone = data.draw(st.sampled_from(pods))
    after = choose([one for one in pods if one is not gone], call("c", session=session))
    assert (after is before) == (gone is not before)


PREFIX = "system prompt " * 200


def prompt(text: str) -> Call:
    body = json.dumps({"prompt": text}).encode()
    return Call("/v1/completions", body, json=True)


@pytest.mark.parametrize("compared", [True, False])
def test_requests_with_the_same_prefix_share_a_p_pod(*, compared: bool) -> None:
    pods = [pod(number) for number in range(4)]
    choose = (policies("cache_aware", chain_of=chain_of) if compared else policies("cache_aware"))[P]
    assert len({choose(pods, prompt(PREFIX + str(number))).observed.name for number in range(20)}) == 1
    others = {choose(pods, prompt(f"{number} {PREFIX}")).observed.name for number in range(40)}
    assert len(others) == 4


def test_prompts_with_one_beginning_are_told_apart_by_what_follows() -> None:
    """All conversations have the system prompt in common, and each its own turns."""
    pods = [pod(number) for number in range(4)]
    choose = policies("cache_aware", chain_of=chain_of)[P]
    turns = [PREFIX + f"{number} " * 2000 for number in range(12)]
    before = []
    for turn in turns:
        one = prompt(turn)
        before.append(choose(pods, one))
        give(before[-1], one)
    assert Counter(one.observed.name for one in before) == {f"d-{number}": 3 for number in range(4)}
    for each in pods:
        each.tokens = 0
        each.prompts.clear()
    assert [choose(pods, prompt(turn + "and the next question")) for turn in turns] == before


def test_a_pod_with_the_prefix_is_passed_when_its_queue_is_longer_than_what_it_saves() -> None:
    pods = [pod(number) for number in range(2)]
    choose = policies("cache_aware", chain_of=chain_of)[P]
    one = prompt(PREFIX * 4)
    has = choose(pods, one)
    sent = give(has, one)
    for outstanding, stays in ((one.tokens, True), (3 * one.tokens, False)):
        has.prompts[sent] = has.tokens = outstanding
        assert (choose(pods, one) is has) == stays


def test_answers_under_way_count_less_than_prompts() -> None:
    pods = [pod(number) for number in range(2)]
    choose = policies("cache_aware", whole=True, chain_of=chain_of)[D]
    one = prompt(PREFIX * 4)
    first = choose(pods, one)
    sent = [give(first, one) for _ in range(5)]
    second = choose(pods, one)
    assert second is not first
    give(second, one)
    for each in sent:
        first.has_begun(each)
    assert choose(pods, one) is first, "five answers are less than a prompt"


def test_a_long_prompt_does_not_keep_a_pod_from_short_requests() -> None:
    """A pod has room for a number of answers, whatever their prompts were."""
    pods = [pod(number) for number in range(2)]
    choose = policies("cache_aware", whole=True, chain_of=chain_of)[D]
    pods[0].has_begun(give(pods[0], prompt("long " * 24_000)))
    for number in range(200):
        one = prompt(f"{number} short")
        chosen = choose(pods, one)
        chosen.has_begun(give(chosen, one))
    assert pods[1].requests - pods[0].requests < 20


@given(st.integers(2, 6), st.integers(1, 60), st.booleans())
def test_a_shared_prefix_leaves_no_pod_idle_for_long(count: int, requests: int, compared: bool) -> None:
    """The most loaded pod has at most three requests more than any other."""
    pods = [pod(number) for number in range(count)]
    choose = (policies("cache_aware", chain_of=chain_of) if compared else policies("cache_aware"))[P]
    one = prompt(PREFIX)
    for _ in range(requests):
        give(choose(pods, one), one)
    loads = [each.tokens for each in pods]
    assert max(loads) <= min(loads) + 3 * one.tokens


def test_prompts_that_have_nothing_in_common_go_where_the_least_is_to_do() -> None:
    pods = [pod(number) for number in range(4)]
    choose = policies("cache_aware", chain_of=chain_of)[P]
    for number in range(40):
        one = prompt(f"{number} " * 4000)
        least = min(each.tokens for each in pods)
        chosen = choose(pods, one)
        assert chosen.tokens == least
        give(chosen, one)


def test_several_routers_send_a_new_prompt_to_the_same_idle_pod() -> None:
    pods = [pod(number) for number in range(4)]
    for number in range(12):
        routers = [policies("cache_aware", chain_of=chain_of)[P] for _ in range(3)]
        assert len({choose(pods, prompt(f"{number} {PREFIX}")) for choose in routers}) == 1
