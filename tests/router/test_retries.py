"""What follows when pods fail a request, in any order."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.v1alpha1.router import WhenNoPrefill
from pdinference.router.retries import FIRST_PAUSE_S, MOST_FAILURES, Failures, NoPrefill
from tests.router.found_pods import pod

SOME = st.lists(st.tuples(st.sampled_from(["refused", "disconnected", "status_500"]), st.booleans()), max_size=12)


def after(some: list[tuple[str, bool]]) -> Failures:
    failures = Failures()
    for number, (reason, reached) in enumerate(some):
        failures.add(pod(f"d{number}"), reason, reached=reached)
    return failures


@given(SOME)
def test_a_request_is_given_up_when_three_pods_failed_that_had_it(some: list[tuple[str, bool]]) -> None:
    failures = after(some)
    assert failures.are_too_many == (sum(reached for _, reached in some) >= MOST_FAILURES)
    assert len(failures.pods) == len(some)
    assert failures.last == (some[-1][0] if some else "")


@given(SOME.filter(bool))
def test_pods_that_get_it_again_have_failed_it_nevertheless(some: list[tuple[str, bool]]) -> None:
    failures = after(some)
    too_many, last = failures.are_too_many, failures.last
    failures.forgive()
    assert not failures.pods
    assert (failures.are_too_many, failures.last) == (too_many, last)


@given(SOME.filter(bool))
def test_pauses_double_and_are_bounded(some: list[tuple[str, bool]]) -> None:
    assert after(some).pause == FIRST_PAUSE_S * min(2 ** (len(some) - 1), 32)
    assert after(some[:1]).pause == FIRST_PAUSE_S


@given(SOME, st.booleans())
def test_failures_are_told_before_what_is_missing(some: list[tuple[str, bool]], has_links: bool) -> None:
    found = NoPrefill.of(after(some), has_links=has_links)
    if some:
        assert found is NoPrefill.FAILURES
    else:
        assert found is (NoPrefill.NO_LINK if has_links else NoPrefill.NO_POD)


@pytest.mark.parametrize("rule", get_args(WhenNoPrefill))
@pytest.mark.parametrize("why", NoPrefill)
def test_d_computes_a_prompt_if_it_may_or_if_p_never_hands_one_over(why: NoPrefill, rule: WhenNoPrefill) -> None:
    assert why.is_left_to_decode(rule) == (rule == "Serve" or why is NoPrefill.NO_HANDOVER)
