"""What is known of D pods, whatever canaries have found."""

import math
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Verification
from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.planning.transfer_measurements import FAULTS
from pdinference.router.findings import Findings, Result
from pdinference.router.pod import Admission, Pod
from tests.router.found_pods import NOW, decode_pods, pod, result, results

MODES = st.sampled_from(get_args(VerificationMode))


def found(mode: VerificationMode, pods: list[Pod], of: list[Result]) -> Findings:
    findings = Findings(mode)
    findings.results = {
        one: result(
            each.outcome.state,
            one.observed.name,
            by_parameter=each.outcome.by_parameter,
            ended_at=each.ended_at,
            faults=each.faults,
        )
        for one, each in zip(pods, of, strict=False)
    }
    return findings


SOME = st.lists(results(), max_size=10)


@given(MODES, decode_pods(), SOME, st.booleans())
def test_the_worst_fault_is_shown_and_else_the_latest_result(
    mode: VerificationMode, pods: list[Pod], of: list[Result], is_open: bool
) -> None:
    findings = found(mode, pods, of)
    shown = findings.shown(is_open=is_open)
    states = {one.outcome.state for one in findings.results.values()}
    if worst := next((state for state in FAULTS if state in states), None):
        assert shown.outcome.state is worst
        assert shown.decode == min(one.decode for one in findings.results.values() if one.outcome.state is worst)
    elif not is_open:
        assert shown.outcome.state is Verification.PENDING
        assert not shown.decode
    elif states:
        assert shown.ended_at == max(one.ended_at for one in findings.results.values())
    else:
        assert shown is findings.last


@given(MODES, st.booleans())
def test_before_any_canary_nothing_is_known(mode: VerificationMode, is_open: bool) -> None:
    shown = Findings(mode).shown(is_open=is_open)
    assert shown.outcome.state is (Verification.OFF if mode == "Off" and is_open else Verification.PENDING)
    assert shown.ended_at == -math.inf
    assert not shown.is_fault


@given(MODES, decode_pods(), SOME, st.data())
def test_results_of_processes_that_have_ended_are_forgotten(
    mode: VerificationMode, pods: list[Pod], of: list[Result], data: st.DataObject
) -> None:
    """A good result of a D pod that has to pass a canary again is one of an earlier process."""
    findings = found(mode, pods, of)
    before = dict(findings.results)
    ready = data.draw(st.sets(st.sampled_from(pods))) if pods else set[Pod]()
    findings.forget(ready)
    for one in pods:
        is_stale = mode == "Required" and one.admission is not Admission.PROVEN
        stays = one in before and one in ready and (before[one].is_fault or not is_stale)
        assert (one in findings.results) == stays
    kept = dict(findings.results)
    findings.forget(ready)
    assert findings.results == kept


@given(st.lists(results(), min_size=1, max_size=8))
def test_faults_in_a_row_are_counted(of: list[Result]) -> None:
    before = None
    row = 0
    for one in of:
        fresh = result(one.outcome.state, by_parameter=one.outcome.by_parameter, faults=0)
        before = fresh.following(before)
        row = row + 1 if fresh.is_fault else 0
        assert before.faults == row
        assert before.outcome == fresh.outcome


@given(results())
def test_a_fault_is_that_of_one_pod(one: Result) -> None:
    named = [name for name in (one.faulty_decode, one.faulty_parameter) if name]
    assert len(named) == int(one.is_fault)


@given(MODES, st.sampled_from(Admission), results())
def test_a_result_of_a_d_pod_that_gets_requests_is_one_of_a_repeated_canary(
    mode: VerificationMode, admission: Admission, one: Result
) -> None:
    decode = pod("d", admission)
    findings = Findings(mode)
    first = findings.repeated
    findings.send(decode, NOW)
    findings.take(decode, one)
    findings.end(decode)
    assert (findings.results, findings.last, findings.under_way) == ({decode: one}, one, {})
    assert findings.repeated is (first if findings.is_unproven(decode) else one)


def test_a_suspicion_keeps_the_start_of_its_canary() -> None:
    decode = pod("d")
    findings = Findings("Required")
    findings.send(decode, NOW)
    findings.suspect(decode)
    assert findings.under_way[decode].began_at == NOW
    assert findings.under_way[decode].suspects
