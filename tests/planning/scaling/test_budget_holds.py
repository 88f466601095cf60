"""HPAs, edits, roll-outs, draining pods, in whichever order: the GPUs of all pods stay within the budget."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pdinference.planning.scaling.bounds import Range
from pdinference.planning.scaling.coordination import coordinate
from pdinference.planning.scaling.grants import SETTLE, grant_for
from pdinference.planning.scaling.limits import Limits
from pdinference.planning.scaling.replicas import ScaleRange, wanted_count

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import AutoscalerState, PodSummary, Verdict, WorkloadState
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.ratio import Ratio

P, D = Role.PARAMETER, Role.DECODE
ACTS = ("operator", "hpa", "hpa", "hpa", "edit", "edit", "back", "switch", "prune", "end", "wait")


class Cluster:
    """What Kubernetes and the operator's reconcile do, in time that passes only when told to."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.now = datetime(2026, 11, 21, tzinfo=UTC)
        self.target, self.followed = "r0", ""
        self.gpus = {"r0": limits.gpus}
        self.desired: dict[tuple[Role, str], int] = {}
        self.leaving: defaultdict[tuple[Role, str], int] = defaultdict(int)
        self.hpas: dict[Role, AutoscalerState | None] = dict.fromkeys(ENGINE_ROLES)
        self.told: dict[Role, list[tuple[datetime, str, Range]]] = {role: [] for role in ENGINE_ROLES}

    def used(self) -> int:
        return sum(
            count * self.gpus[revision][role]
            for counts in (self.desired, self.leaving)
            for (role, revision), count in counts.items()
        )

    def fleet(self) -> Fleet:
        workloads = [
            WorkloadState(f"{role}-{revision}", role, revision, desired=count, gpus=self.gpus[revision][role])
            for (role, revision), count in self.desired.items()
        ]
        pods = [
            PodSummary("p", role, revision, gpus=self.gpus[revision][role], terminating=terminating)
            for counts, terminating in ((self.desired, False), (self.leaving, True))
            for (role, revision), count in counts.items()
            for _ in range(count)
        ]
        return Fleet(workloads, pods)

    def count(self, role: Role, revision: str, count: int) -> None:
        """Pods come, or begin to go."""
        gone = self.desired.get((role, revision), 0) - count
        self.leaving[role, revision] += max(0, gone)
        self.desired[role, revision] = count

    def operator(self) -> None:
        """One reconcile: the pods that it counts itself, then the HPAs."""
        found = coordinate(
            self.limits, self.fleet(), self.hpas, target=self.target, followed=self.followed, now=self.now
        )
        if not found.held:
            for role in ENGINE_ROLES:
                other = self.followed if self.followed != self.target else ""
                wanted = wanted_count(
                    self.limits.counts[role].capped(found.most[role]),
                    live=self.desired.get((role, self.target), 0),
                    serving=self.desired.get((role, other), 0),
                    followed=self.followed == self.target,
                )
                if not wanted.met_by(self.desired.get((role, self.target), 0)):
                    self.count(role, self.target, wanted.count)
        found = coordinate(
            self.limits, self.fleet(), self.hpas, target=self.target, followed=self.followed, now=self.now
        )
        for role in ENGINE_ROLES if self.followed else ():
            self.write(role, found.ranges[role])

    def write(self, role: Role, limits: Range) -> None:
        workload = f"{role}-{self.followed}"
        grant = grant_for(self.hpas[role], workload, limits.maximum, self.now)
        self.hpas[role] = AutoscalerState(workload, limits.minimum, limits.maximum, grant)
        self.told[role].append((self.now, self.followed, limits))

    def hpa(self, role: Role, wants: int, age: int) -> None:
        """Acts by what it has now, or by what it had within the last minute."""
        if not self.followed or not self.told[role]:
            return
        newest = self.told[role][-1]
        # What was replaced a minute ago is forgotten.
        replaced = [later for later, *_ in self.told[role][1:]]
        known = [entry for entry, end in zip(self.told[role], replaced, strict=False) if self.now - end < SETTLE]
        _, follows, limits = ([*known, newest])[-1 - age % (len(known) + 1)]
        if (role, follows) not in self.desired:
            return
        before = self.desired[role, follows]
        self.count(role, follows, min(max(wants, limits.minimum), limits.maximum))
        hpa = self.hpas[role]
        assert hpa is not None
        active = Verdict("True", "ValidMetricFound")
        limited = Verdict("True", "TooManyReplicas") if wants > hpa.maximum else None
        now = self.desired[role, follows]
        self.hpas[role] = AutoscalerState(
            hpa.workload, hpa.minimum, hpa.maximum, hpa.grant, True, now, now, wants, (), None, active, limited
        )
        if now < before:
            # Pods that go are seen at once, and the next look of this HPA is seconds away.
            self.operator()
            self.told[role] = self.told[role][-1:]

    def act(self, act: str, role: Role, number: int, age: int) -> None:
        match act:
            case "operator":
                self.operator()
            case "hpa":
                self.hpa(role, number, age)
            case "edit":
                if number % 2:
                    self.prune()
                self.target = f"r{len(self.gpus)}"
                self.gpus[self.target] = self.limits.gpus
                self.operator()
            case "back":
                self.target = min((revision for _, revision in self.desired), default=self.target)
                self.operator()
            case "switch" if all((role, self.target) in self.desired for role in ENGINE_ROLES):
                self.switch()
            case "prune":
                self.prune()
            case "end":
                self.leaving.clear()
            case "wait":
                self.now += timedelta(seconds=5 * number)

    def prune(self) -> None:
        """Pairs that serve no more, and never shall, are gone, but for their pods."""
        for role, revision in [place for place in self.desired if place[1] not in (self.target, self.followed)]:
            self.leaving[role, revision] += self.desired.pop((role, revision))

    def switch(self) -> None:
        """Requests go to the target revision, and the HPAs follow."""
        self.followed = self.target
        self.operator()


@st.composite
def _limits(draw: st.DrawFn) -> Limits:
    gpus = {role: draw(st.sampled_from((0, 1, 2, 4))) for role in ENGINE_ROLES}
    low = {role: draw(st.integers(1, 2)) for role in ENGINE_ROLES}
    counts = {
        role: ScaleRange(draw(st.integers(1, 4)), low[role], low[role] + draw(st.integers(0, 8))) for role in gpus
    }
    ratio = draw(st.none() | st.just(Ratio(Fraction(1, 2), Fraction(2))))
    budget = sum(gpus[role] * low[role] for role in gpus) + draw(st.integers(0, 24))
    return Limits(ratio, budget, gpus, counts, frozenset(ENGINE_ROLES))


_acts = st.tuples(st.sampled_from(ACTS), st.sampled_from(ENGINE_ROLES), st.integers(0, 12), st.integers(0, 3))


@settings(max_examples=150)
@given(_limits(), st.lists(_acts, min_size=40, max_size=80))
def test_the_budget_holds(limits: Limits, acts: list[tuple[str, Role, int, int]]) -> None:
    cluster = Cluster(limits)
    cluster.operator()
    for act in (("switch", P, 0, 0), ("operator", P, 0, 0), *acts):
        cluster.act(*act)
        assert limits.budget is not None
        assert cluster.used() <= limits.budget, act


NARROW = Limits(
    None,
    14,
    {P: 1, D: 4},
    {P: ScaleRange(1, 1, 1), D: ScaleRange(1, 1, 2)},
    frozenset(ENGINE_ROLES),
)
"""Beside an old pair, D's HPA may have one pod or two, by what that HPA may still do to the old one."""


@given(_limits(), st.lists(_acts, max_size=30))
@example(NARROW, [("edit", P, 0, 0), ("switch", P, 0, 0)])
def test_when_nothing_happens_nothing_is_written(limits: Limits, acts: list[tuple[str, Role, int, int]]) -> None:
    cluster = Cluster(limits)
    cluster.operator()
    for act in (("switch", P, 0, 0), ("operator", P, 0, 0), *acts):
        cluster.act(*act)
    cluster.leaving.clear()
    for _ in range(4):
        cluster.now += SETTLE + timedelta(seconds=2)
        cluster.operator()
        cluster.leaving.clear()
    before = (dict(cluster.hpas), dict(cluster.desired))
    cluster.now += SETTLE + timedelta(seconds=2)
    cluster.operator()
    assert (cluster.hpas, cluster.desired) == before
