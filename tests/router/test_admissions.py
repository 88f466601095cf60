"""Who may get requests, whatever canaries find, and whatever happens to pods."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pdinference.api.names import PodFault, Verification
from pdinference.router import admissions, canary_schedule
from pdinference.router.admissions import OTHERS_S, PATIENCE_S, Change, RevisionService, concluded, suspected, trusted
from pdinference.router.canary_outcome import CanaryOutcome
from pdinference.router.canary_schedule import Candidates
from pdinference.router.findings import Findings, Result
from pdinference.router.links import linked
from pdinference.router.pod import Admission, Pod
from pdinference.router.pods import Pods
from tests.router.engines import D, P
from tests.router.found_pods import ENDED, GOOD, NOW, Client, decode_pods, pod, result, results

STATES = st.sampled_from(ENDED)


def found(pods: list[Pod], states: list[Verification]) -> Findings:
    findings = Findings("Required")
    findings.results = {
        one: result(state, one.observed.name) for one, state in zip(pods, states, strict=False) if one.admitted
    }
    return findings


WAITED = st.sampled_from([None, 0.0, OTHERS_S - 1, OTHERS_S, 9999.0])


@given(decode_pods(), st.lists(STATES, max_size=10), WAITED)
def test_a_revision_opens_with_all_d_pods_or_half_of_them_after_a_while(
    pods: list[Pod], states: list[Verification], waited: float | None
) -> None:
    findings = found(pods, states)
    before = RevisionService(is_open=False, first_admitted_at=None if waited is None else NOW - waited)
    after = before.at(NOW, findings, pods)
    admitted = sum(one.admitted for one in pods)
    half = waited is not None and waited >= OTHERS_S and 2 * admitted >= len(pods)
    enough = admitted > 0 and (admitted == len(pods) or half)
    wrong = any(one.outcome.state is Verification.WRONG_ANSWER for one in findings.results.values())
    assert after.is_open == (enough and not wrong)
    if not admitted:
        assert after.first_admitted_at is None, "the time begins again"
    else:
        assert after.first_admitted_at == (NOW if waited is None else NOW - waited)


@given(decode_pods(), st.lists(STATES, max_size=10), WAITED)
def test_a_revision_that_serves_stays_in_service(
    pods: list[Pod], states: list[Verification], waited: float | None
) -> None:
    service = RevisionService(is_open=False, first_admitted_at=waited).opened()
    assert service.at(NOW, found(pods, states), pods).is_open


@given(st.sampled_from(Admission), results(), st.one_of(st.none(), results()), st.booleans())
def test_a_canary_decides_about_a_d_pod_that_had_to_pass_one(
    admission: Admission, last: Result, before: Result | None, is_open: bool
) -> None:
    decode = pod("d", admission)
    change = concluded(Findings("Required"), decode, before, last, is_open=is_open)
    after = admission if change is None else change.admission
    if admission is Admission.PROVEN:
        assert change is None, "faults that are found later change the status alone"
    elif not last.is_fault:
        assert after is Admission.PROVEN
    elif last.faulty_decode:
        assert after is Admission.HELD
    else:
        twice = before is not None and bool(before.faulty_parameter)
        assert after is (Admission.ON_TRUST if is_open and twice else admission)
    assert concluded(Findings("Warn"), decode, before, last, is_open=True) is None


@given(st.sampled_from(Admission))
def test_a_first_wrong_answer_ends_the_trust_in_a_d_pod(admission: Admission) -> None:
    decode = pod("d", admission)
    is_trusted = admission is Admission.ON_TRUST
    assert suspected(decode) == (Change(decode, Admission.HELD) if is_trusted else None)


@given(
    decode_pods(),
    st.lists(st.tuples(st.one_of(st.none(), results()), st.sampled_from([0, PATIENCE_S - 1, PATIENCE_S, 9999]))),
    st.booleans(),
    st.booleans(),
)
def test_d_pods_on_trust_have_answered_what_they_were_asked_and_wait_for_p(
    pods: list[Pod], of: list[tuple[Result | None, float]], suspects: bool, is_open: bool
) -> None:
    findings = Findings("Required")
    for one, (last, waited) in zip(pods, of, strict=False):
        findings.send(one, NOW - waited)
        if last is not None:
            findings.results[one] = last
        if suspects:
            findings.suspect(one)
    changes = trusted(findings, NOW, is_open=is_open)
    assert all((one.admission, one.why) == (Admission.ON_TRUST, "its canary waits for P") for one in changes)
    expected = []
    for one, (last, waited) in zip(pods, of, strict=False):
        is_known_for_a_fault = last is not None and last.faulty_decode
        if waited >= PATIENCE_S and not one.under_way and not one.admitted and not is_known_for_a_fault:
            expected.append(one)
    no_trust = not is_open or suspects or findings.has_wrong_answer
    assert [one.decode for one in changes] == ([] if no_trust else expected)


def test_a_refusal_names_the_fault_and_the_progress() -> None:
    pods = [pod("d1", Admission.PROVEN), pod("d2")]
    findings = Findings("Required")
    assert admissions.refusal(findings, pods) == (
        "The KV transfer is not verified (pending): no canary has ended. 1 of 2 D pods have passed a canary."
    )
    findings.take(pods[0], result(Verification.VERIFIED, "d1"))
    assert admissions.refusal(findings, pods) == (
        "The KV transfer is not verified (pending): canaries to other D pods have not ended. "
        "1 of 2 D pods have passed a canary."
    )
    findings.take(pods[1], result(Verification.WRONG_ANSWER, "d2"))
    assert admissions.refusal(findings, pods) == (
        "The KV transfer from p to d2 is not verified (wrong_answer): by the test. 1 of 2 D pods have passed a canary."
    )


NAMES = ("p1", "p2", "d1", "d2", "d3", "d4", "d5", "d6")


class Revision(RuleBasedStateMachine):
    """The decisions as the verifier applies them, while pods come, go, start again and fail canaries in any order."""

    @initialize(number=st.integers(3, len(NAMES)))
    def starts(self, number: int) -> None:
        self.now = NOW
        self.pods = Pods(lambda: self.now)
        self.observed = {name: pod(name).observed for name in NAMES[:number]}
        self.findings = Findings("Required")
        self.service = RevisionService(is_open=False)
        self.before: dict[Pod, Result | None] = {}
        self.client = Client()
        self.passed: set[Pod] = set()
        self.pods.observe(self.observed)

    @property
    def decode(self) -> list[Pod]:
        return [one for one in self.pods if one.observed.role is D]

    def apply(self, change: Change | None) -> None:
        if change is not None:
            self.pods.admit(change.decode, change.admission)

    def look(self) -> None:
        self.findings.forget({one for one in self.pods if one.observed.ready})
        self.service = self.service.at(self.now, self.findings, self.pods.linked_decode)
        for change in trusted(self.findings, self.now, is_open=self.service.is_open):
            assert self.service.is_open
            self.apply(change)

    @rule(seconds=st.sampled_from([0.5, 2.0, 15.0, 60.0, 120.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    @rule(name=st.sampled_from(NAMES), ready=st.booleans(), again=st.booleans())
    def a_pod_changes(self, name: str, ready: bool, again: bool) -> None:
        if name in self.observed:
            old = self.observed[name]
            self.observed[name] = replace(old, ready=ready, restarts=old.restarts + again)
            self.pods.observe(self.observed)
            self.passed -= {
                one for one in self.passed if not one.observed.ready or (again and one.observed.name == name)
            }
            self.look()

    @rule(name=st.sampled_from(NAMES), refuses=st.booleans())
    def a_pod_fails_a_request(self, name: str, refuses: bool) -> None:
        for one in self.pods:
            if one.observed.name == name:
                self.pods.failed(one, PodFault.REFUSES if refuses else None)
                self.passed -= {one} if refuses else set()

    @rule()
    def pods_answer(self) -> None:
        for one in self.pods:
            self.pods.worked(one)
            self.pods.answered(one)

    @rule(name=st.sampled_from(NAMES))
    def a_client_comes_or_goes(self, name: str) -> None:
        for one in self.pods:
            if one.observed.name == name:
                one.under_way ^= {self.client}

    @rule()
    def canaries_are_sent(self) -> None:
        self.findings.forget({one for one in self.pods if one.observed.ready})
        busy = any(one.under_way for one in self.pods)
        seen = Candidates(self.pods.reachable(P), self.pods.reachable(D), busy, self.pods.doubted_at)
        for parameter, decode in canary_schedule.due(self.findings, seen, self.now):
            assert linked(parameter, decode)
            assert decode not in self.findings.under_way
            self.findings.send(decode, self.now)
            self.before[decode] = self.findings.results.get(decode)

    @precondition(lambda self: self.findings.under_way)
    @rule(state=STATES, by_parameter=st.booleans(), data=st.data())
    def a_canary_ends(self, state: Verification, by_parameter: bool, data: st.DataObject) -> None:
        decode = data.draw(st.sampled_from(list(self.findings.under_way)))
        by_parameter &= state is Verification.FAILED
        self.end(decode, CanaryOutcome(state, "by the test", by_parameter=by_parameter))

    @precondition(lambda self: any(not one.suspects for one in self.findings.under_way.values()))
    @rule(data=st.data())
    def a_first_answer_is_wrong(self, data: st.DataObject) -> None:
        decode = data.draw(st.sampled_from(list(self.findings.under_way)))
        self.findings.suspect(decode)
        self.apply(suspected(decode))
        assert decode.admission is not Admission.ON_TRUST

    def end(self, decode: Pod, outcome: CanaryOutcome) -> None:
        before = self.before.pop(decode)
        began = self.findings.under_way[decode].began_at
        last = Result(outcome, "p", decode.observed.name, self.now - began, self.now).following(before)
        self.apply(concluded(self.findings, decode, before, last, is_open=self.service.is_open))
        self.findings.take(decode, last)
        self.findings.end(decode)
        if outcome.state in GOOD and decode.observed.ready:
            self.passed.add(decode)
        was_open = self.service.is_open
        self.look()
        if outcome.state is Verification.WRONG_ANSWER and decode.observed.ready:
            assert self.service.is_open == was_open, "no revision opens with a wrong answer"

    @invariant()
    def only_d_pods_that_passed_or_joined_get_requests(self) -> None:
        for one in self.decode:
            if one.admission is Admission.PROVEN:
                assert one in self.passed
            if one.admission is Admission.ON_TRUST:
                assert self.service.is_open

    def teardown(self) -> None:
        """When all faults have ended, each D pod gets requests, and nothing is wrong."""
        if not hasattr(self, "pods"):
            return
        self.observed = {name: replace(one, ready=True) for name, one in self.observed.items()}
        self.pods.observe(self.observed)
        for one in self.pods:
            one.under_way.clear()
        for _ in range(2 * len(NAMES)):
            self.pods_answer()
            self.now += 700.0
            self.canaries_are_sent()
            for decode in list(self.findings.under_way):
                self.end(decode, CanaryOutcome(Verification.VERIFIED, "by the test"))
        assert self.service.is_open
        assert all(one.admission is Admission.PROVEN for one in self.decode)
        assert self.findings.shown(is_open=True).outcome.state is Verification.VERIFIED


Revision.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRevision = Revision.TestCase
