"""What P and D may have together, from all that is there: roll-outs, pods that leave, and earlier maximums."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.planning.observed import AutoscalerState, Grant, PodSummary, Verdict, WorkloadState
from pdinference.planning.scaling.bounds import Range
from pdinference.planning.scaling.coordination import Coordination, coordinate
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.grants import grant_for
from pdinference.planning.scaling.limits import Limits
from pdinference.planning.scaling.wanted import wanted_by

P, D = Role.PARAMETER, Role.DECODE
NOW = datetime(2026, 11, 21, tzinfo=UTC)
SCALED = {"autoscaling": {"maxReplicas": 10}}


def limits(budget: int | None = 8, *, p: Any = SCALED, d: Any = SCALED, **spec: Any) -> Limits:
    together = {"gpuBudget": budget, **spec.pop("together", {})}
    document = {"model": {"source": {"path": "/m"}}, "parameter": p, "decode": d, "autoscaling": together, **spec}
    found = Limits.of(Spec.model_validate(document))
    assert found is not None
    return found


def workload(role: Role, count: int, revision: str = "a", gpus: int = 1, rank: int = 0) -> WorkloadState:
    return WorkloadState(f"llama-{role}-{revision}", role, revision, desired=count, gpus=gpus, node_rank=rank)


def pods(role: Role, count: int, revision: str = "a", *, gpus: int = 1, leaving: int = 0) -> list[PodSummary]:
    """Pods, the last of which are about to go."""
    return [
        PodSummary(f"{role}-{revision}-{n}", role, revision, gpus=gpus, terminating=n >= count - leaving)
        for n in range(count)
    ]


def pair(p: int, d: int, revision: str = "a", gpus: int = 1) -> Fleet:
    return Fleet(
        [workload(P, p, revision, gpus), workload(D, d, revision, gpus)],
        [*pods(P, p, revision, gpus=gpus), *pods(D, d, revision, gpus=gpus)],
    )


def both(*fleets: Fleet) -> Fleet:
    """Several at once."""
    return Fleet(
        [workload for fleet in fleets for workload in fleet._workloads],
        [pod for fleet in fleets for pod in fleet._pods],
    )


def hpa(maximum: int, *, minimum: int = 1, wants: int | None = None, grant: Grant | None = None) -> AutoscalerState:
    active = Verdict("True", "ValidMetricFound")
    return AutoscalerState("w", minimum, maximum, grant=grant, active=active, desired=wants)


def decide(
    found: Limits | None, fleet: Fleet, hpas: Any = None, *, target: str = "a", followed: str = "a"
) -> Coordination:
    return coordinate(found, fleet, hpas or {}, target=target, followed=followed, now=NOW)


def maximums(decision: Coordination) -> tuple[int, int]:
    return decision.ranges[P].maximum, decision.ranges[D].maximum


def test_without_limits_nothing_is_decided() -> None:
    spec = Spec.model_validate({"model": {"source": {"path": "/m"}}, "parameter": SCALED, "decode": SCALED})
    assert Limits.of(spec) is None
    assert decide(None, pair(1, 1)) == Coordination()


class TestSteady:
    def test_the_budget_is_divided_and_its_use_told(self) -> None:
        decision = decide(limits(), pair(1, 1))
        assert maximums(decision) == (4, 4)
        assert (decision.used, decision.budget, decision.held) == (2, 8, "")

    def test_an_instance_of_several_nodes_counts_with_all_of_them(self) -> None:
        p = {**SCALED, "parallelism": {"tensor": 4, "nodes": 2}}
        fleet = Fleet([workload(P, 1, gpus=2), workload(P, 1, gpus=2, rank=1), workload(D, 1, gpus=4)], [])
        d = {**SCALED, "parallelism": {"tensor": 4}}
        assert maximums(decide(limits(16, p=p, d=d), fleet)) == (2, 2)

    def test_a_role_on_cpu_costs_nothing(self) -> None:
        d = {**SCALED, "accelerator": {"type": "CPU"}}
        fleet = Fleet([workload(P, 1), workload(D, 1, gpus=0)], pods(P, 1))
        assert maximums(decide(limits(4, d=d), fleet)) == (4, 10)

    def test_a_role_that_is_not_autoscaled_has_its_replicas_first(self) -> None:
        decision = decide(limits(8, p={"replicas": 3}), pair(3, 1), {D: hpa(5)})
        assert decision.ranges == {P: Range(3, 3), D: Range(1, 5)}

    def test_and_gets_more_only_when_the_other_cannot_use_them(self) -> None:
        assert maximums(decide(limits(8, p={"replicas": 5}), pair(3, 2), {D: hpa(5)})) == (3, 3)
        earlier = Grant(5, NOW + timedelta(seconds=1))
        assert maximums(decide(limits(8, p={"replicas": 5}), pair(3, 2), {D: hpa(3, grant=earlier)})) == (3, 3)
        later = Grant(5, NOW)
        assert maximums(decide(limits(8, p={"replicas": 5}), pair(3, 2), {D: hpa(3, grant=later)})) == (5, 3)

    def test_pods_that_leave_hold_their_gpus(self) -> None:
        fleet = Fleet([workload(P, 2), workload(D, 2)], [*pods(P, 2), *pods(D, 5, leaving=3)])
        assert maximums(decide(limits(8), fleet, {P: hpa(3), D: hpa(5)})) == (2, 2)

    def test_and_cost_no_pod_its_place(self) -> None:
        """A pod that was evicted is replaced at once; that the two overlap is no reason to end another one."""
        fleet = Fleet([workload(P, 4), workload(D, 4)], [*pods(P, 4), *pods(D, 5, leaving=1)])
        assert maximums(decide(limits(8), fleet, {P: hpa(4), D: hpa(4)})) == (4, 4)

    def test_pods_of_a_pair_that_is_gone_count(self) -> None:
        fleet = both(pair(1, 1, "b"), Fleet([], pods(D, 2, "a", gpus=2, leaving=2)))
        assert maximums(decide(limits(8), fleet, target="b", followed="b")) == (2, 2)

    def test_the_division_stays_as_long_as_it_is_enough(self) -> None:
        fleet = pair(2, 3)
        assert maximums(decide(limits(8), fleet, {P: hpa(2), D: hpa(6, wants=5)})) == (2, 6)
        assert maximums(decide(limits(8), fleet, {P: hpa(3), D: hpa(5, wants=3)})) == (3, 5)

    def test_earlier_maximums_are_waited_for(self) -> None:
        until = NOW + timedelta(seconds=30)
        assert decide(limits(), pair(1, 1), {P: hpa(4, grant=Grant(5, until)), D: hpa(3)}).settled_at == until
        assert decide(limits(), pair(1, 1), {P: hpa(4, grant=Grant(5, NOW)), D: hpa(3)}).settled_at is None

    def test_a_ratio_alone_needs_no_budget(self) -> None:
        found = limits(None, together={"ratio": {"min": {"parameter": 1, "decode": 2}}})
        decision = decide(found, pair(1, 5), {P: hpa(10), D: hpa(10)})
        assert decision.ranges[P] == Range(3, 10)
        assert decision.ranges[P].pulled

    def test_a_ratio_of_a_role_that_is_stopped_waits(self) -> None:
        together: dict[str, Any] = {"ratio": {"min": {}}}
        assert limits(8, p={**SCALED, "replicas": 0}, together=together).ratio is None


class TestRollout:
    def test_a_first_pair_that_fits_starts(self) -> None:
        assert decide(limits(2), Fleet([], []), followed="").held == ""

    def test_a_first_pair_starts_as_large_as_the_budget_allows(self) -> None:
        found = limits(5, p={**SCALED, "replicas": 4}, d={**SCALED, "replicas": 4})
        assert sum(maximums(decide(found, Fleet([], []), followed=""))) == 5

    def test_a_second_pair_that_fits_starts_when_hpas_can_no_longer_take_its_room(self) -> None:
        fleet = pair(2, 2)
        decision = decide(limits(8), fleet, {P: hpa(4), D: hpa(4)}, target="b")
        assert maximums(decision) == (2, 2)
        assert "within a minute" in decision.held
        until = NOW + timedelta(seconds=1)
        told = {P: hpa(2, grant=Grant(4, until)), D: hpa(2, grant=Grant(4, until))}
        assert decide(limits(8), fleet, told, target="b").held
        assert decide(limits(8), fleet, {P: hpa(2), D: hpa(2)}, target="b").held == ""

    def test_one_that_does_not_fit_waits_and_the_old_one_scales_on(self) -> None:
        decision = decide(limits(8), pair(3, 2), {P: hpa(4), D: hpa(4)}, target="b")
        assert maximums(decision) == (4, 4)
        assert "needs 5 GPUs, 5 are in use, and spec.autoscaling.gpuBudget is 8. Raise it to 10" in decision.held
        assert "Recreate" in decision.held

    def test_both_pairs_count_while_both_are_there(self) -> None:
        fleet = both(pair(1, 1), pair(1, 1, "b", gpus=2))
        assert maximums(decide(limits(9), fleet, {P: hpa(1), D: hpa(1)}, target="b")) == (1, 2)
        assert maximums(decide(limits(9), fleet, {P: hpa(1), D: hpa(1)}, target="b", followed="b")) == (1, 2)

    def test_what_an_hpa_may_still_do_to_the_old_pair_counts_for_a_minute(self) -> None:
        fleet = both(pair(1, 1), pair(1, 1, "b"))

        def after(revision: str, grant: Grant | None = None) -> tuple[int, int]:
            hpas = {role: replace(hpa(2, grant=grant), workload=f"llama-{role}-{revision}") for role in (P, D)}
            return maximums(decide(limits(8), fleet, hpas, target="b", followed="b"))

        assert after("a") == (2, 2)
        assert after("b", Grant(2, NOW + timedelta(seconds=1))) == (2, 2)
        assert after("b", Grant(2, NOW)) == (3, 3)

    def test_and_keeps_a_third_pair_waiting(self) -> None:
        """All three have two pods each, and the HPAs may still give four to the first and to the second."""
        fleet = both(pair(2, 2), pair(2, 2, "b"))

        def held(budget: int, until: datetime) -> str:
            grant = Grant(4, until)
            hpas = {role: replace(hpa(2, grant=grant), workload=f"llama-{role}-b") for role in (P, D)}
            return decide(limits(budget), fleet, hpas, target="c", followed="b").held

        assert held(12, NOW) == ""
        assert held(19, NOW + timedelta(seconds=1))
        assert held(20, NOW + timedelta(seconds=1)) == ""

    def test_recreate_waits_until_the_old_pods_are_gone(self) -> None:
        found = limits(4, rollout={"strategy": "Recreate"})
        gone = Fleet([], [*pods(P, 2, leaving=2), *pods(D, 2, leaving=2)])
        assert "when the pods that are still there are gone" in decide(found, gone, target="b", followed="").held
        assert decide(found, Fleet([], []), target="b", followed="").held == ""

    def test_old_pods_of_a_role_that_is_not_autoscaled_count(self) -> None:
        found = limits(8, p={"replicas": 2})
        fleet = pair(3, 1)
        assert decide(found, fleet, {D: hpa(1)}, target="b").held == ""  # 3 + 1 and 2 + 1
        assert decide(limits(6, p={"replicas": 2}), fleet, {D: hpa(1)}, target="b").held

    def test_half_a_pair_that_was_created_gets_its_other_half(self) -> None:
        decision = decide(limits(4), Fleet([workload(P, 1)], pods(P, 1)), followed="")
        assert decision.held == ""
        assert decision.ranges[D].maximum >= 1


class TestGrants:
    def test_a_lower_maximum_leaves_a_trace_and_a_higher_one_none(self) -> None:
        assert grant_for(None, "w", 4, NOW) is None
        assert grant_for(hpa(4), "w", 5, NOW) is None
        found = grant_for(hpa(4), "w", 3, NOW)
        assert found is not None
        assert found.maximum == 4
        assert timedelta(seconds=60) <= found.until - NOW <= timedelta(seconds=62)

    def test_it_keeps_the_highest_that_still_counts(self) -> None:
        recent, old = Grant(9, NOW + timedelta(seconds=1)), Grant(9, NOW)
        for earlier, most in ((recent, 9), (old, 4)):
            found = grant_for(hpa(4, grant=earlier), "w", 3, NOW)
            assert found is not None
            assert found.maximum == most

    def test_it_stays_while_the_maximum_does(self) -> None:
        old = Grant(9, NOW - timedelta(days=1))
        assert grant_for(hpa(4, grant=old), "w", 4, NOW) == old

    def test_another_workload_leaves_a_trace_whatever_the_maximum(self) -> None:
        for maximum in (3, 4, 5):
            found = grant_for(hpa(4), "another", maximum, NOW)
            assert found is not None
            assert found.maximum == 4

    @pytest.mark.parametrize("text", ["", "x", "4", "4 until ever", "many until 2026-11-21T00:00:00+00:00"])
    def test_what_is_no_grant_is_none(self, text: str) -> None:
        assert Grant.read(text) is None

    def test_what_is_written_can_be_read(self) -> None:
        assert Grant.read(Grant(7, NOW).written()) == Grant(7, NOW)


class TestWanted:
    """The decision of the HPA, as far as our own bounds do not hide it."""

    STATE = replace(hpa(6, minimum=3, wants=4), replicas=4, momentary=4)

    def test_it_is_the_decision_of_the_hpa(self) -> None:
        assert wanted_by(self.STATE, live=4) == 4
        assert wanted_by(replace(self.STATE, momentary=1), live=4) == 4  # it waits whether that lasts

    def test_a_blind_hpa_wants_nothing_known(self) -> None:
        assert wanted_by(replace(self.STATE, active=Verdict("False", "FailedGetExternalMetric")), live=4) is None
        assert wanted_by(replace(self.STATE, desired=None), live=4) is None

    def test_more_than_the_maximum(self) -> None:
        limited = replace(self.STATE, limited=Verdict("True", "TooManyReplicas"), replicas=6, desired=6)
        assert wanted_by(replace(limited, momentary=9), live=6) == 9
        assert wanted_by(replace(limited, momentary=None), live=6) == 7

    def test_a_maximum_that_was_raised_since_is_not_what_it_asked_for(self) -> None:
        limited = replace(self.STATE, limited=Verdict("True", "TooManyReplicas"), replicas=4, desired=4, momentary=5)
        assert wanted_by(replace(limited, maximum=12), live=4) == 5

    def test_less_than_the_minimum_is_believed_one_pod_at_a_time(self) -> None:
        limited = replace(self.STATE, limited=Verdict("True", "TooFewReplicas"), replicas=3, desired=3, momentary=1)
        assert wanted_by(limited, live=3) == 2
        assert wanted_by(replace(limited, momentary=3), live=3) == 3

    def test_and_only_when_the_hpa_has_looked_since(self) -> None:
        limited = replace(self.STATE, limited=Verdict("True", "TooFewReplicas"), replicas=4, desired=4, momentary=1)
        assert wanted_by(limited, live=4) == 3  # the minimum was just lowered from 4
        assert wanted_by(limited, live=3) == 3  # it has just gone down
        assert wanted_by(replace(limited, minimum=5), live=4) == 4  # the minimum was just raised


class TestAfterSleep:
    """Both roles have no pods and start together, from their minimums on."""

    TWO = {"autoscaling": {"minReplicas": 2, "maxReplicas": 10}}  # noqa: RUF012

    def test_neither_takes_what_the_other_needs_to_start(self) -> None:
        decision = decide(limits(4, p=self.TWO, d=self.TWO), pair(0, 0))
        assert (decision.most[P], decision.most[D]) == (2, 2)

    def test_an_hpa_that_finds_no_pods_keeps_none_of_the_budget_for_itself(self) -> None:
        hpas = {P: hpa(2, minimum=2), D: hpa(2, minimum=2)}
        decision = decide(limits(4, p=self.TWO, d=self.TWO), pair(0, 2), hpas)
        assert decision.most[P] == 2
