"""Which pod is restarted because its KV transfer is proven broken, in worlds of P and D pods with hidden faults."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Role
from pdinference.api.v1alpha1.status import RepairStatus
from pdinference.planning.observed import PodSummary, SharedEngine
from pdinference.planning.repair import MOST_RESTARTS, Repair, repair
from pdinference.planning.transfer_measurements import PROVEN_FAULTS, PROVEN_S, PairFacts

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
P, D = Role.PARAMETER, Role.DECODE


def pod(name: str, started: int = 0) -> PodSummary:
    role = P if name.startswith("p") else D
    return PodSummary(name, role, "r1", "Running", ready=True, uid=f"uid-{name}", started=f"2026-11-28T{started:05}")


def broken(parameter: str, decode: str, faults: int = PROVEN_FAULTS, seconds: float = PROVEN_S) -> PairFacts:
    return PairFacts(parameter, decode, faults, seconds)


def decided(
    pairs: Iterable[PairFacts],
    *pods: PodSummary,
    stuck: Sequence[PodSummary] = (),
    canaries: bool = True,
    before: RepairStatus | None = None,
    settled: bool = True,
    now: datetime = NOW,
) -> Repair:
    return repair(
        pairs=tuple(pairs), pods=pods, stuck=stuck, canaries=canaries, settled=settled, before=before, now=now
    )


def evicted(found: Repair) -> str:
    return found.evict.name if found.evict else ""


@dataclass
class Cluster:
    """P and D pods of one revision. A pod is sick until it is restarted, or for ever.

    Attributes:
        sick: Pods all of whose pairs are broken.
        pairs: Single pairs that are broken until one of their pods, the second one, is restarted.
        incurable: Whether restarts help nothing.
    """

    parameter: int
    decode: int
    sick: set[str] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    incurable: bool = False
    status: RepairStatus | None = None
    now: datetime = NOW
    restarts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = count(self.decode)
        names = [*(f"p{n}" for n in range(self.parameter)), *(f"d{n}" for n in range(self.decode))]
        self.pods = {name: pod(name, number) for number, name in enumerate(names)}

    def is_broken(self, parameter: str, decode: str) -> bool:
        return bool({parameter, decode} & self.sick) or (parameter, decode) in self.pairs

    @property
    def facts(self) -> list[PairFacts]:
        names = list(self.pods)
        every = [(one, other) for one in names for other in names if one.startswith("p") and other.startswith("d")]
        return [broken(*pair) if self.is_broken(*pair) else PairFacts(*pair) for pair in every]

    @property
    def works(self) -> bool:
        return not any(pair.faults for pair in self.facts)

    def step(self) -> str:
        """Decide once, and do it. The pod that was restarted."""
        found = decided(self.facts, *self.pods.values(), before=self.status, now=self.now)
        self.status = found.after("")
        if found.evict is None:
            return ""
        gone = found.evict.name
        self.restarts.append(gone)
        others = [name for name in self.pods if name != gone and name[0] == gone[0]]
        assert others or (gone.startswith("p") and all(self.is_broken(gone, d) for d in self.pods if d[0] == "d"))
        del self.pods[gone]
        fresh = gone if gone.startswith("p") else f"d{next(self._numbers)}"
        self.pods[fresh] = pod(fresh, 1000 + len(self.restarts))
        self._restarted(gone, fresh)
        return gone

    def _restarted(self, gone: str, fresh: str) -> None:
        if not self.incurable:
            self.sick.discard(gone)
            self.pairs = {pair for pair in self.pairs if pair[1] != gone}
            return
        self.sick = {fresh if name == gone else name for name in self.sick}
        self.pairs = {(fresh if a == gone else a, fresh if b == gone else b) for a, b in self.pairs}

    def run(self, steps: int = 60) -> None:
        """Decide every 30 s."""
        for _ in range(steps):
            self.step()
            self.now += timedelta(seconds=30)


COUNTS = st.integers(1, 4)


@given(COUNTS, COUNTS, st.data())
def test_the_pod_to_blame_is_restarted_and_no_other(parameter: int, decode: int, data: st.DataObject) -> None:
    world = Cluster(parameter, decode)
    (sick,) = data.draw(st.lists(st.sampled_from([*world.pods]), min_size=1, max_size=1))
    world.sick = {sick}
    only_d = decode == 1
    world.run()
    if sick.startswith("d") and only_d:  # it is the last one that answers: P pods are tried, which helps nothing
        assert not any(name.startswith("d") for name in world.restarts)
        return
    assert world.works
    assert world.status is not None
    assert world.status.outcome == "Repaired"
    # With one pod of each role or one pair in all, either may be to blame.
    alone = {sick[0]: 1, "p": parameter, "d": decode}
    if (sick.startswith("p") and decode > 1) or (sick.startswith("d") and parameter > 1):
        assert world.restarts == [sick], alone


@given(st.integers(2, 4), st.integers(2, 4), st.data())
def test_of_a_single_pair_the_pod_that_started_last_is_restarted_and_then_the_other_one(
    parameter: int, decode: int, data: st.DataObject
) -> None:
    world = Cluster(parameter, decode, pairs={("p0", "d0")})
    by_p = data.draw(st.booleans())
    if by_p:  # d0 started last
        world.incurable = True
    assert world.step() == "d0"
    world.now += timedelta(minutes=2)
    if by_p:
        assert world.step() == "p0"
    else:
        assert world.step() == ""
        assert world.works


@given(COUNTS, COUNTS, st.data())
def test_what_restarts_do_not_mend_ends_after_a_few_and_is_said(
    parameter: int, decode: int, data: st.DataObject
) -> None:
    world = Cluster(parameter, decode, incurable=True)
    world.sick = data.draw(st.sets(st.sampled_from([*world.pods]), min_size=1))
    world.run(200)
    assert len(world.restarts) <= MOST_RESTARTS
    assert world.status is not None
    if len(world.restarts) == MOST_RESTARTS:
        assert world.status.outcome == "GaveUp"
    else:
        assert "no other D pod answers" in world.status.withheld


@given(COUNTS, COUNTS, st.data())
def test_between_restarts_is_a_time_that_doubles(parameter: int, decode: int, data: st.DataObject) -> None:
    world = Cluster(parameter, decode, incurable=True, sick={"p0"})
    times = []
    for _ in range(200):
        if world.step():
            times.append(world.now)
        world.now += timedelta(seconds=10)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    assert all(gap >= 120 * 2**number for number, gap in enumerate(gaps))


@pytest.mark.parametrize("weak", [{"faults": PROVEN_FAULTS - 1}, {"seconds": PROVEN_S - 1}])
def test_what_is_not_proven_restarts_nothing(weak: dict[str, float]) -> None:
    pair = PairFacts("p0", "d0", **{"faults": PROVEN_FAULTS, "seconds": PROVEN_S, **weak})  # type: ignore[arg-type]
    assert decided([pair], pod("p0"), pod("d0")) == Repair()


def test_a_blip_that_all_pairs_of_a_pod_had_proves_nothing() -> None:
    pairs = [broken("p0", f"d{number}", faults=1, seconds=0) for number in range(3)]
    pods = [pod("p0"), *(pod(f"d{number}") for number in range(3))]
    assert decided(pairs, *pods) == Repair()


def test_while_other_pairs_are_unknown_nobody_is_to_blame() -> None:
    """The canary to d1 may be late: p0 could be the only P pod that works."""
    pods = pod("p0", started=9), pod("d0"), pod("d1")
    assert evicted(decided([broken("p0", "d0")], *pods)) == "d0", "its only pair is broken"
    two = pod("p0"), pod("p1"), pod("d0"), pod("d1")
    assert decided([broken("p0", "d0"), PairFacts("p1", "d0")], *two) == Repair()
    found = decided([broken("p0", "d0"), broken("p0", "d1"), PairFacts("p1", "d0")], *two)
    assert evicted(found) == "p0"


def test_sleep_is_no_repair() -> None:
    before = RepairStatus(pods=["p0"], restart_time=NOW, proof="-", outcome="GaveUp")
    assert decided([], before=before) == Repair(before)


def test_canaries_of_several_pairs_prove_a_pod_together() -> None:
    pairs = [broken("p0", f"d{number}", faults=1) for number in range(3)]
    pods = [pod("p0"), *(pod(f"d{number}") for number in range(3))]
    found = decided(pairs, *pods)
    assert evicted(found) == "p0"
    assert found.evicted is not None
    assert found.evicted.proof == "3 canaries in 60 s found that KV cache does not get through between it and 3 pods"


def test_while_pods_change_nothing_is_restarted() -> None:
    before = RepairStatus(pods=["p0"], restart_time=NOW - timedelta(hours=1), outcome="Pending")
    assert decided([broken("p0", "d0")], pod("p0"), pod("d0"), settled=False, before=before) == Repair(before)


def test_the_last_d_pod_is_not_restarted_and_the_status_says_so() -> None:
    pods = pod("p0"), pod("p1"), pod("d0", started=9)
    found = decided([broken("p0", "d0"), PairFacts("p1", "d0")], *pods)
    assert evicted(found) == "p0", "D works with the other one"
    engines = (SharedEngine(P, "p-0", 1, ready=True), SharedEngine(D, "d-0", 2, ready=True))
    shared = PodSummary("a", D, "r1", "Running", ready=True, engines=engines)
    found = decided([broken("a/p-0", "a/d-0")], shared)
    assert found.evict is None
    assert found.status == RepairStatus(withheld="pod a: no other D pod answers")
    assert decided([PairFacts("a/p-0", "a/d-0")], shared, before=found.status).status is None


def test_a_refused_eviction_is_no_restart() -> None:
    found = decided([broken("p0", "d0")], pod("p0"), pod("d0"))
    status = found.after("its PodDisruptionBudget allows no eviction now")
    assert status == RepairStatus(withheld="pod p0: its PodDisruptionBudget allows no eviction now")
    assert found.again_after is not None
    assert evicted(decided([broken("p0", "d0")], pod("p0"), pod("d0"), before=status)) == "p0"


def test_pods_that_are_not_those_of_the_resource_change_nothing() -> None:
    """What a router pod reports is untrusted."""
    assert decided([broken("p0", "other"), broken("x", "d0")], pod("p0"), pod("d0")) == Repair()


def test_a_pod_with_several_engines_is_one_pod() -> None:
    engines = (SharedEngine(P, "p-0", 1, ready=True), SharedEngine(D, "d-0", 2, ready=True))
    shared = [PodSummary(name, D, "r1", "Running", ready=True, engines=engines) for name in ("a", "b")]
    found = decided([broken("a/p-0", "a/d-0"), PairFacts("b/p-0", "b/d-0")], *shared)
    assert evicted(found) == "a"
    assert found.evicted is not None
    assert "between its engines" in found.evicted.proof


def test_a_fault_long_after_one_that_was_mended_is_a_new_one() -> None:
    old = RepairStatus(
        pods=["p0"] * MOST_RESTARTS, restart_time=NOW - timedelta(minutes=61), outcome="Repaired", proof="-"
    )
    found = decided([broken("p0", "d0")], pod("p0"), pod("d0"), before=old)
    assert found.evicted is not None
    assert found.evicted.pods == ["p0"]
    recent = old.model_copy(update={"restart_time": NOW - timedelta(minutes=59)})
    gave_up = decided([broken("p0", "d0")], pod("p0"), pod("d0"), before=recent)
    assert gave_up.evict is None
    assert gave_up.status is not None
    assert gave_up.status.outcome == "GaveUp"


def test_it_is_repaired_only_once_a_canary_got_through_each_pod() -> None:
    before = RepairStatus(pods=["p0"], restart_time=NOW, proof="-", outcome="Pending")
    pods = pod("p0"), pod("d0"), pod("d1")
    assert decided([], *pods, before=before).status == before
    assert decided([PairFacts("p0", "d0")], *pods, before=before).status == before
    found = decided([PairFacts("p0", "d0"), PairFacts("p0", "d1")], *pods, before=before).status
    assert found is not None
    assert found.outcome == "Repaired"


def test_a_stuck_engine_is_restarted_even_if_its_pod_is_the_only_one_of_its_role() -> None:
    d0 = pod("d0")
    found = decided([PairFacts("p0", "d0")], pod("p0"), d0, stuck=[d0])
    assert evicted(found) == "d0"
    assert found.evicted is not None
    assert "no step for minutes" in found.evicted.proof


def test_a_stuck_engine_is_restarted_before_pods_with_broken_pairs() -> None:
    pods = [pod("p0", 9), pod("d0"), pod("d1")]
    pairs = [broken("p0", "d0"), broken("p0", "d1")]
    found = decided(pairs, *pods, stuck=[pods[2]])
    assert evicted(found) == "d1"


def test_a_stuck_engine_that_shares_the_only_pod_is_left_and_named() -> None:
    shared = SharedEngine(D, "d-0", 8000, ready=False)
    alone = replace(pod("d0"), engines=(shared,))
    found = decided([], alone, stuck=[alone])
    assert evicted(found) == ""
    assert found.status is not None
    assert "no other D pod answers" in found.status.withheld


@pytest.mark.parametrize(("passed", "restarts"), [(60, False), (121, True)])
def test_restarts_of_stuck_engines_have_the_same_pauses(passed: int, restarts: bool) -> None:
    d1, before = pod("d1"), RepairStatus(pods=["d0"], restart_time=NOW, outcome="Pending")
    found = decided([], pod("p0"), d1, stuck=[d1], before=before, now=NOW + timedelta(seconds=passed))
    assert evicted(found) == ("d1" if restarts else "")


@pytest.mark.parametrize("ahead", [NOW + timedelta(days=1), datetime(9999, 12, 31, tzinfo=UTC)])
@pytest.mark.parametrize("canaries", [True, False])
def test_a_restart_that_lies_ahead_was_now(ahead: datetime, *, canaries: bool) -> None:
    """The operator's clock was set back, or another client wrote the time."""
    before = RepairStatus(pods=["d0"], restart_time=ahead, outcome="Pending")
    pairs = [broken("p0", "d1")] if canaries else []
    found = decided(pairs, pod("p0"), pod("d1", 9), canaries=canaries, before=before)
    assert found.status is not None
    assert found.status.restart_time == NOW
    assert found.again_after is not None


@pytest.mark.parametrize(
    ("passed", "outcome"), [(timedelta(minutes=29), "Pending"), (timedelta(minutes=30), "Repaired")]
)
def test_without_canaries_a_restart_has_helped_if_no_engine_is_stuck_for_a_while(
    passed: timedelta, outcome: str
) -> None:
    """`transfer.verification: Off`: no canary ever gets through the pod, and four restarts would end the repair."""
    before = RepairStatus(pods=["d0"], restart_time=NOW, outcome="Pending")
    found = decided([], pod("p0"), pod("d1"), canaries=False, before=before, now=NOW + passed)
    assert found.status is not None
    assert found.status.outcome == outcome
    assert (found.again_after is None) == (outcome == "Repaired")
