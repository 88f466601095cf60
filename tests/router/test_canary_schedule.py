"""Which canaries are due, whatever is known."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Verification
from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.router.canary_schedule import (
    AT_ONCE,
    DOUBTED_S,
    LONGEST_PAUSE_S,
    LONGEST_S,
    REPEATED_S,
    SELDOM_S,
    Candidates,
    due,
    time_for_decode,
)
from pdinference.router.findings import Findings, Result
from pdinference.router.links import linked
from pdinference.router.pod import Admission, Pod
from tests.router.found_pods import AGES, GOOD, NOW, decode_pods, pod, result, results

NEVER = -math.inf


def candidates(*decode: Pod, busy: bool = False, doubted_at: float = NEVER) -> Candidates:
    """The D pods, and a P pod."""
    return Candidates([pod("p")], decode, busy, doubted_at)


def is_due(findings: Findings, after: float, *, busy: bool = False, doubted_at: float = NEVER) -> bool:
    """Whether a canary to the only D pod is due some time after the last one."""
    (decode,) = findings.results
    return bool(due(findings, candidates(decode, busy=busy, doubted_at=doubted_at), NOW + after))


def served(last: Result) -> Findings:
    """A D pod that gets requests, and whose last canary was the last of all."""
    findings = Findings("Required")
    findings.take(pod("d", Admission.PROVEN), last)
    return findings


@st.composite
def known(draw: st.DrawFn) -> tuple[Findings, Candidates]:
    """D pods, and whatever canaries have found."""
    pods = draw(decode_pods())
    findings = Findings(draw(st.sampled_from(["Required", "Warn"])))
    for one in pods:
        if draw(st.booleans()):
            findings.take(one, draw(results(one.observed.name)))
        if draw(st.integers(0, 3)) == 0:
            findings.send(one, NOW - draw(st.floats(0, 1000)))
    findings.forget(set(pods))
    parameter = [pod(f"p{number}", group=group) for number, group in enumerate(draw(st.text("ab", max_size=4)))]
    reachable = [one for one in pods if draw(st.integers(0, 4))]
    return findings, Candidates(parameter, reachable, draw(st.booleans()), NOW - draw(AGES))


@given(known())
def test_canaries_go_over_links_to_d_pods_without_one_and_few_at_a_time(of: tuple[Findings, Candidates]) -> None:
    findings, seen = of
    pairs = due(findings, seen, NOW)
    decode = [one for _, one in pairs]
    assert all(one in seen.parameter and linked(one, other) for one, other in pairs)
    assert len(set(decode)) == len(decode)
    assert all(one in seen.decode and one not in findings.under_way for one in decode)
    tried = [one for one in {*decode, *findings.under_way} if one in findings.results or one.admitted]
    # Those under way may be more: a pod under way counts as tried from its result or its admission on.
    assert sum(one in findings.results for one in decode) <= AT_ONCE
    assert sum(one not in findings.results for one in decode) <= AT_ONCE
    if any(one in findings.results and findings.is_unproven(one) for one in decode):
        assert len([one for one in tried if one in findings.under_way]) < AT_ONCE


@given(known())
def test_d_pods_that_get_requests_wait_for_all_others(of: tuple[Findings, Candidates]) -> None:
    findings, seen = of
    pairs = due(findings, seen, NOW)
    if any(not findings.is_unproven(decode) for _, decode in pairs):
        assert len(pairs) == 1
        assert not findings.under_way


@given(known())
def test_an_untried_d_pod_that_has_to_pass_a_canary_waits_for_a_place_alone(of: tuple[Findings, Candidates]) -> None:
    """Neither for rest nor for pods that were tried."""
    findings, seen = of
    sent = [decode for _, decode in due(findings, seen, NOW)]
    waits = [
        one
        for one in seen.decode
        if findings.is_unproven(one)
        and one not in findings.results
        and one not in findings.under_way
        and any(linked(other, one) for other in seen.parameter)
    ]
    taken = sum(one not in findings.results and not one.admitted for one in findings.under_way)
    assert sum(one in waits for one in sent) == min(len(waits), max(0, AT_ONCE - taken))


@given(known())
def test_p_pods_take_turns(of: tuple[Findings, Candidates]) -> None:
    findings, seen = of
    parameter = [pod("p1"), pod("p2")]
    decode = [replace_group(one) for one in seen.decode]
    pairs = due(findings, Candidates(parameter, decode, seen.busy, seen.doubted_at), NOW)
    found = [sum(one is parameter[number] for one, _ in pairs) for number in (0, 1)]
    if not findings.under_way and all(one not in findings.results for one in decode):
        assert abs(found[0] - found[1]) <= 1


def replace_group(one: Pod) -> Pod:
    one.observed = replace(one.observed, group="")
    return one


@given(st.integers(1, 40), st.floats(0, 0.99), st.booleans())
def test_a_d_pod_with_a_fault_is_tried_again_after_a_time_that_doubles(faults: int, part: float, busy: bool) -> None:
    findings = Findings("Required")
    findings.take(pod("d"), result(Verification.FAILED, faults=faults))
    pause = min(2.0 ** (faults - 1), LONGEST_PAUSE_S)
    assert not is_due(findings, part * pause, busy=busy)
    assert is_due(findings, pause, busy=busy)


SECONDS = st.integers(0, 4000).map(lambda eighths: eighths / 8)
"""Sums of these are exact."""


@given(SECONDS, st.integers(0, 20), st.floats(0, 0.99))
def test_under_load_canaries_are_a_thousandth_of_the_time_at_most(seconds: float, faults: int, part: float) -> None:
    state = Verification.COMPUTED_BY_DECODE if faults else Verification.VERIFIED
    findings = served(result(state, seconds=seconds, faults=faults))
    pause = max(REPEATED_S if faults else SELDOM_S, 1000 * seconds)
    assert not is_due(findings, part * pause, busy=True)
    assert is_due(findings, pause, busy=True), "it waits for rest, but not forever"


@given(SECONDS, st.floats(0, 0.99))
def test_at_rest_canaries_are_a_thousandth_of_the_time_but_one_an_hour(seconds: float, part: float) -> None:
    findings = served(result(Verification.VERIFIED, seconds=seconds))
    pause = min(max(REPEATED_S, 1000 * seconds), SELDOM_S)
    assert not is_due(findings, part * pause)
    assert is_due(findings, pause)


@given(SECONDS, st.integers(1, 40), st.sampled_from([Verification.WRONG_ANSWER, Verification.FAILED]))
def test_a_fault_is_tried_again_soon_at_rest_however_long_its_canary_took(
    seconds: float, faults: int, state: Verification
) -> None:
    """Otherwise `WrongAnswers` would stay in the status for an hour after its end."""
    findings = served(result(state, seconds=seconds, faults=faults))
    pause = min(2.0 ** (faults - 1), REPEATED_S)
    assert not is_due(findings, 0.99 * pause)
    assert is_due(findings, pause)


@given(SECONDS, st.booleans())
def test_a_canary_without_an_answer_is_no_load(seconds: float, by_parameter: bool) -> None:
    """Otherwise `Failing` would stay in the status for an hour after a pod was lost for a minute."""
    findings = served(result(Verification.FAILED, by_parameter=by_parameter, seconds=seconds))
    assert is_due(findings, REPEATED_S, busy=True)
    untried = pod("d2", Admission.PROVEN)
    assert due(findings, candidates(*findings.results, untried, busy=True), NOW)[0][1] is untried


@given(st.sampled_from(GOOD), SECONDS, st.floats(0.001, 100), st.floats(0, 0.999))
def test_a_failure_is_followed_by_a_canary_at_rest(
    state: Verification, seconds: float, doubted_after: float, part: float
) -> None:
    """Otherwise the status would keep the fault, or hide it, for up to an hour of rest."""
    findings = served(result(state, seconds=seconds))
    doubted_at = NOW + doubted_after
    settled = doubted_after + DOUBTED_S
    assert DOUBTED_S + 100 < REPEATED_S, "it is not due for another reason"
    assert not is_due(findings, part * settled, doubted_at=doubted_at), "requests of before decide about the status"
    assert is_due(findings, settled + 0.001, doubted_at=doubted_at)
    findings.take(pod("d2", Admission.PROVEN), result(state, ended_at=NOW + settled + 1, seconds=seconds))
    assert not due(findings, candidates(*findings.results, doubted_at=doubted_at), NOW + settled + 2), "one is enough"


@given(st.sampled_from(GOOD), SECONDS, st.floats(0, 0.99))
def test_with_warn_a_d_pod_that_joins_is_tried_at_rest_at_once_and_under_load_seldom(
    state: Verification, seconds: float, part: float
) -> None:
    findings = Findings("Warn")
    findings.take(pod("d1"), result(state, seconds=seconds))
    joins = pod("d2")
    for after, busy, expected in (
        (0.0, False, True),
        (part * 1000 * seconds, True, not seconds),
        (1000 * seconds, True, True),
    ):
        pairs = due(findings, candidates(*findings.results, joins, busy=busy), NOW + after)
        assert [decode for _, decode in pairs] == ([joins] if expected else [])


@given(st.permutations([None, *(result(state) for state in (Verification.FAILED, Verification.VERIFIED))]))
def test_what_is_not_known_is_asked_first_and_faults_next(of: list[Result | None]) -> None:
    findings = Findings("Warn")
    pods = [pod(f"d{number}") for number in range(len(of))]
    for one, last in zip(pods, of, strict=True):
        if last is not None:
            findings.take(one, last)
    findings.repeated = result(Verification.VERIFIED, ended_at=NEVER)
    order = []
    rest = list(pods)
    while rest:
        ((_, chosen),) = due(findings, candidates(*rest), NOW)
        order.append(of[pods.index(chosen)])
        rest.remove(chosen)
    assert [one and one.outcome.state for one in order] == [None, Verification.FAILED, Verification.VERIFIED]


@pytest.mark.parametrize("mode", ["Required", "Warn"])
def test_the_first_canary_is_due_at_once(mode: VerificationMode) -> None:
    assert due(Findings(mode), candidates(pod("d"), busy=True), 0.0)


@given(st.integers(0, 40))
def test_the_time_for_d_doubles_three_times(faults: int) -> None:
    assert time_for_decode(faults) == LONGEST_S * min(2**faults, 8)
