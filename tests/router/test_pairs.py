"""Broken pairs of P and D are found under load, and what is exported shows which pod they have in common."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import METRIC_PAIR_FAULT_SECONDS, METRIC_PAIR_FAULTS, Verification
from pdinference.planning.transfer_measurements import MOST_PAIRS, PROVEN_FAULTS, PROVEN_S
from pdinference.router import canary
from pdinference.router.canary_outcome import CanaryOutcome
from pdinference.router.canary_schedule import Candidates, due
from pdinference.router.findings import Findings, Result
from pdinference.router.pod import Admission, Pod
from pdinference.router.verification_metrics import VerificationMetrics
from tests.router.canaries import Client, model
from tests.router.engines import Fleet
from tests.router.found_pods import NOW, pod
from tests.router.kv_model import KvModel
from tests.router.test_verification import Clock, Stepped

PODS = ("p1", "p2", "d1", "d2")
EVERY = {(p, d) for p in PODS[:2] for d in PODS[2:]}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_COUNTERS_S", (0.0, 0.0))


@asynccontextmanager
async def under_load() -> AsyncIterator[tuple[Fleet, KvModel, Stepped]]:
    """Pods that serve, and whose D pods always have a request."""
    clock = Clock()
    async with model(None, *PODS, clock=clock) as (world, served, by):
        verifier = Stepped(world.pods, by, "Required", clock)
        await verifier.every()
        assert not verifier.refusal
        for one in world.pods:
            one.under_way.add(Client())
        await wait(verifier, 30)  # each pair is tried once
        assert exported(verifier) == dict.fromkeys(EVERY, 0)
        yield world, served, verifier


def named(world: Fleet, name: str) -> Pod:
    return next(one for one in world.pods if one.observed.name == name)


async def wait(verifier: Stepped, seconds: int) -> None:
    for _ in range(seconds):
        await verifier.once(later=1.0)


def exported(verifier: Stepped, name: str = METRIC_PAIR_FAULTS) -> dict[tuple[str, str], float]:
    (family,) = (one for one in VerificationMetrics(verifier).collect() if one.name == name)
    return {(sample.labels["parameter"], sample.labels["decode"]): sample.value for sample in family.samples}


@pytest.mark.parametrize("sick", PODS)
async def test_a_pod_that_breaks_is_known_by_its_pairs_within_minutes(sick: str) -> None:
    async with under_load() as (world, served, verifier):
        served.broken = {pair for pair in EVERY if sick in pair}
        world.pods.doubt(named(world, sick))
        await wait(verifier, 120)
        found = exported(verifier)
        assert found.keys() == EVERY
        assert {pair for pair, faults in found.items() if faults} == served.broken
        seconds = exported(verifier, METRIC_PAIR_FAULT_SECONDS)
        assert sum(found.values()) >= PROVEN_FAULTS
        assert max(seconds.values()) >= PROVEN_S
        assert {pair for pair, age in seconds.items() if age} == served.broken
        assert verifier.shown.is_fault
        served.broken = set()
        await wait(verifier, 120)
        assert set(exported(verifier).values()) == set(exported(verifier, METRIC_PAIR_FAULT_SECONDS).values()) == {0}
        assert not verifier.shown.is_fault


async def test_without_a_doubt_no_canary_is_sent_under_load() -> None:
    async with under_load() as (_, served, verifier):
        before = len(served.ways)
        await wait(verifier, 300)
        assert len(served.ways) == before


async def test_a_doubt_is_answered_by_one_canary_for_each_pair() -> None:
    async with under_load() as (world, served, verifier):
        before = len(served.ways)
        world.pods.doubt(named(world, "p1"))
        await wait(verifier, 120)
        assert {(parameter, decode) for parameter, decode in served.ways[before:]} == {("p1", "d1"), ("p1", "d2")}
        assert len(served.ways[before:]) == 2 * 2, "each canary has two prompts"


async def test_what_is_known_of_a_pair_ends_with_its_pods() -> None:
    async with under_load() as (world, served, verifier):
        served.broken = {("p1", "d1")}
        world.pods.doubt(named(world, "p1"))
        await wait(verifier, 30)
        assert exported(verifier)["p1", "d1"] > 1
        one = named(world, "d1")
        one.under_way.clear()
        seen = {pod.observed.uid: pod.observed for pod in world.pods if pod is not one}
        world.pods.observe(seen)
        await verifier.once(later=1.0)
        assert all("d1" not in pair for pair in exported(verifier))


def outcome(*, by_parameter: bool = False, unrelated: bool = False) -> CanaryOutcome:
    return CanaryOutcome(Verification.FAILED, "by the test", by_parameter=by_parameter, unrelated=unrelated)


@given(st.lists(st.sampled_from(["good", "fault", "by P", "unrelated", "not applicable"]), max_size=20))
def test_what_shows_nothing_of_the_way_is_no_fault_and_ends_none(of: list[str]) -> None:
    """A pod that is overloaded answers late."""
    outcomes = {
        "good": CanaryOutcome(Verification.VERIFIED, ""),
        "fault": outcome(),
        "by P": outcome(by_parameter=True),
        "unrelated": outcome(unrelated=True),
        "not applicable": CanaryOutcome(Verification.NOT_APPLICABLE, ""),
    }
    findings, parameter, decode = Findings("Required"), pod("p"), pod("d", Admission.PROVEN)
    row, since, until = 0, None, None
    for at, one in enumerate(of):
        found = findings.take_pair(parameter, decode, Result(outcomes[one], "p", "d", 1.0, float(at)))
        if one in {"good", "not applicable"}:
            row, since = 0, None
        elif one == "fault":
            row, since, until = row + 1, at if since is None else since, at
        assert found.faults == row
        assert found.is_fault == bool(row)
        assert found.ended_at == at
        assert one != "not applicable" or found.outcome.state is Verification.PENDING
        if since is not None:
            assert (found.faulty_since, found.faulty_until) == (since, until)


def test_pairs_are_bounded() -> None:
    findings = Findings("Warn")
    parameter = [pod(f"p{number}") for number in range(30)]
    decode = [pod(f"d{number}") for number in range(30)]
    for one in (*parameter, *decode):
        one.doubted_at = NOW
    now = NOW
    for other in decode:
        findings.take(other, Result(CanaryOutcome(Verification.VERIFIED, ""), ended_at=now))
    tried = 0
    while pairs := due(findings, Candidates(parameter, decode, busy=True, doubted_at=NOW), now):
        (pair,) = pairs
        findings.take_pair(*pair, Result(CanaryOutcome(Verification.VERIFIED, ""), ended_at=now + 1))
        now += 1
        tried += 1
    assert tried == len(findings.pairs) == MOST_PAIRS

    broken = parameter[-1]  # no pair of it was tried
    broken.doubted_at = now + 1
    for _ in range(400):
        now += 1
        for one, other in due(findings, Candidates(parameter, decode, busy=True, doubted_at=NOW), now):
            found = outcome() if one is broken else CanaryOutcome(Verification.VERIFIED, "")
            findings.take_pair(one, other, Result(found, ended_at=now))
    assert {pair for pair, last in findings.pairs.items() if last.faults} == {(broken, other) for other in decode}
    assert len(findings.pairs) == MOST_PAIRS
