"""The replica counts of one revision: range, ratio, GPU budget, sleep."""

from typing import Any

import pytest

from pdinference.planning.observed import PodSummary
from pdinference.planning.scaling.allocation import Allocation, allocate
from pdinference.planning.scaling.fleet import ScaledFleet
from pdinference.planning.scaling.limited import Limit, LimitReason
from pdinference.planning.scaling.scale_spec import ScaleSpec
from tests.planning.scaling.fleets import (
    D,
    P,
    Part,
    between,
    fleet,
    gpus,
    pods,
    revision,
    scale_spec,
    with_gpus,
    workload,
)

NONE = scale_spec(None)


def decide(
    spec: ScaleSpec, there: ScaledFleet, p: int | None = None, d: int | None = None, *, serving: str = "a", **more: Any
) -> Allocation:
    return allocate(spec, there, {P: p, D: d}, target="a", serving=serving, **more)


def counts(*arguments: Any, **more: Any) -> tuple[int, int]:
    found = decide(*arguments, **more)
    assert all(list(of_revisions) == ["a"] for of_revisions in found.replicas.values())
    return found.replicas[P]["a"], found.replicas[D]["a"]


class TestRange:
    def test_a_role_without_autoscaling_has_its_replicas_always(self) -> None:
        spec = scale_spec(None, p={"replicas": 3}, d={"replicas": 0})
        for there in (fleet(), fleet(revision(1, 7)), fleet(revision(9, 0))):
            assert counts(spec, there, 5, 5) == (3, 0)

    def test_a_recommended_count_is_kept_within_the_range(self) -> None:
        spec = scale_spec(None, p=between(2, 6), d=between(2, 6))
        assert counts(spec, fleet(revision(3, 3)), 4, 5) == (4, 5)
        assert counts(spec, fleet(revision(3, 3)), 1, 7) == (2, 6)

    def test_without_recommendation_the_live_count_stays_in_range(self) -> None:
        spec = scale_spec(None, p=between(1, 6), d=between(1, 6))
        assert counts(spec, fleet(revision(4, 9))) == (4, 6)

    def test_a_scale_target_that_is_absent_recommends_nothing(self) -> None:
        found = allocate(NONE, fleet(revision(4, 2)), {}, target="a", serving="a")
        assert found.replicas == {P: {"a": 4}, D: {"a": 2}}

    def test_a_first_revision_starts_with_replicas(self) -> None:
        spec = scale_spec(None, p=between(1, 6, replicas=9), d=between(2, 6))
        assert counts(spec, fleet(), serving="") == (6, 2)
        spec = scale_spec(None, p=between(1, 6, replicas=3), d=between(2, 6))
        assert counts(spec, fleet(), serving="") == (3, 2)
        assert counts(spec, fleet(), 5, 5, serving="") == (3, 2)

    def test_a_first_revision_keeps_its_count_until_it_serves(self) -> None:
        assert counts(NONE, fleet(revision(4, 2)), 1, 9, serving="") == (4, 2)
        assert counts(NONE, fleet(revision(4, 2)), 1, 9) == (1, 9)

    def test_half_a_revision_gets_its_other_half(self) -> None:
        half = ScaledFleet([workload(P, 1)], pods(P, 1))
        spec = scale_spec(4, d=between(1, 6, replicas=2))
        assert counts(spec, half, serving="") == (1, 2)

    def test_replicas_zero_stops_an_autoscaled_role(self) -> None:
        spec = scale_spec(None, p=between(2, 6, replicas=0))
        assert counts(spec, fleet(revision(3, 3)), 5, 5) == (0, 5)
        assert counts(spec, fleet(revision(0, 3)), 5, 5) == (0, 5)

    def test_a_revision_whose_workloads_were_deleted_gets_its_recommendation(self) -> None:
        assert counts(NONE, fleet(), 5, 2) == (5, 2)
        assert counts(scale_spec(6), fleet(), 5, 5) == (3, 3)

    def test_without_a_budget_none_is_reported(self) -> None:
        found = decide(NONE, fleet(revision(2, 2)), 2, 2)
        assert (found.budget, found.used, found.blocked, found.limited) == (None, 4, "", {})


class TestSleep:
    def test_a_revision_that_sleeps_has_no_pods(self) -> None:
        found = decide(scale_spec(8), fleet(revision(3, 2)), 3, 2, asleep=True)
        assert found.replicas == {P: {"a": 0}, D: {"a": 0}}
        assert (found.used, found.budget, found.blocked) == (5, 8, "")
        assert found.limited[D].reason is LimitReason.ASLEEP
        assert found.limited[P] == Limit(LimitReason.ASLEEP, 3, 0, "The role has no pods until the next request.")

    def test_a_role_without_recommendation_still_counts_as_asleep(self) -> None:
        assert decide(NONE, fleet(revision(0, 0)), asleep=True).limited[D].recommended == 1

    def test_a_revision_that_wakes_gets_what_is_recommended(self) -> None:
        spec = scale_spec(None, p=between(2, 6), d=between(3, 6))
        assert counts(spec, fleet(revision(0, 0)), 2, 3) == (2, 3)
        assert counts(spec, fleet(revision(0, 0))) == (2, 3)

    def test_neither_role_takes_what_the_other_needs_to_start(self) -> None:
        spec = scale_spec(4, p=between(2, 10), d=between(2, 10))
        assert counts(spec, fleet(revision(0, 0)), 2, 9) == (2, 2)
        assert counts(spec, fleet(revision(0, 2)), 9, 9) == (2, 2)

    def test_a_role_waits_while_the_other_is_short_of_its_minimum(self) -> None:
        spec = with_gpus(scale_spec(8, p=between(1, 4), d=between(1, 8)), p=4)
        ending = ([workload(P, 0, gpus=4), workload(D, 1)], [*pods(P, 1, gpus=4, ending=1), *pods(D, 1)])
        assert counts(spec, fleet(ending), 1, 8) == (0, 1)
        assert counts(spec, ScaledFleet([workload(P, 0, gpus=4), workload(D, 1)], []), 1, 8) == (1, 4)

    def test_a_revision_that_wakes_waits_for_the_gpus_of_its_old_pods(self) -> None:
        spec = scale_spec(4, p=between(2, 10), d=between(2, 10))
        ending = ([workload(P, 0), workload(D, 0)], [*pods(P, 2, ending=2), *pods(D, 1, ending=1)])
        assert sum(counts(spec, fleet(ending), 2, 2)) == 1


class TestRatio:
    BAND = {"min": {"parameter": 1, "decode": 2}, "max": {"parameter": 2, "decode": 1}}  # noqa: RUF012

    def test_a_role_that_grows_pulls_the_other_along(self) -> None:
        assert counts(scale_spec(None, ratio=self.BAND), fleet(revision(1, 1)), 1, 6) == (3, 6)
        assert counts(scale_spec(None, ratio=self.BAND), fleet(revision(1, 1)), 5, 1) == (5, 3)

    def test_half_a_band_holds_on_its_side_only(self) -> None:
        assert counts(scale_spec(None, ratio={"min": {"decode": 2}}), fleet(revision(1, 1)), 6, 1) == (6, 1)
        assert counts(scale_spec(None, ratio={"max": {"parameter": 2}}), fleet(revision(1, 1)), 1, 6) == (1, 6)

    def test_both_go_down_when_both_are_recommended_to(self) -> None:
        spec = scale_spec(None, ratio={"min": {}, "max": {}})
        assert counts(spec, fleet(revision(4, 4)), 1, 4) == (4, 4)
        assert counts(spec, fleet(revision(4, 4)), 1, 3) == (3, 3)

    def test_no_role_outgrows_what_the_other_can_follow(self) -> None:
        spec = scale_spec(None, d=between(1, 3), ratio={"max": {"parameter": 2}})
        found = decide(spec, fleet(revision(1, 1)), 10, 1)
        assert (found.replicas[P]["a"], found.replicas[D]["a"]) == (6, 3)
        assert found.limited[P].reason is LimitReason.RATIO

    def test_the_range_goes_before_the_ratio(self) -> None:
        spec = scale_spec(None, p=between(8, 10), d=between(1, 8), ratio={"max": {}})
        assert counts(spec, fleet(revision(8, 8)), 8, 1) == (8, 8)
        assert counts(spec, fleet(revision(8, 8)), 10, 1) == (8, 8)

    def test_a_first_revision_starts_within_the_ratio(self) -> None:
        spec = scale_spec(None, d=between(1, 8, replicas=4), ratio=self.BAND)
        assert counts(spec, fleet(), serving="") == (2, 4)


class TestBudget:
    def test_what_is_free_is_shared_by_those_that_want_it(self) -> None:
        assert counts(scale_spec(8), fleet(revision(1, 1)), 9, 9) == (4, 4)
        assert counts(scale_spec(8), fleet(revision(1, 1)), 2, 9) == (2, 6)
        assert counts(scale_spec(8), fleet(revision(1, 1)), 9, 3) == (6, 2)
        assert counts(scale_spec(9), fleet(revision(1, 1)), 9, 9) == (5, 4)

    def test_the_role_that_has_less_of_what_it_wants_comes_first(self) -> None:
        assert counts(scale_spec(6), fleet(revision(4, 1)), 5, 5) == (4, 2)
        assert counts(scale_spec(6), fleet(revision(1, 4)), 5, 5) == (2, 4)

    def test_what_one_role_cannot_use_the_other_gets(self) -> None:
        spec = scale_spec(8, d=between(1, 8, **gpus(4)))
        there = fleet(([workload(P, 1), workload(D, 1, gpus=4)], []))
        assert counts(spec, there, 8, 2) == (4, 1)

    def test_a_role_that_shrinks_frees_its_gpus_when_its_pods_are_gone(self) -> None:
        spec = scale_spec(8)
        assert counts(spec, fleet(revision(4, 4)), 2, 8) == (2, 4)
        ending = ([workload(P, 2), workload(D, 4)], [*pods(P, 4, ending=1), *pods(D, 4)])
        assert counts(spec, fleet(ending), 2, 8) == (2, 4)
        assert counts(spec, fleet(revision(2, 4)), 2, 8) == (2, 6)

    def test_pods_that_are_asked_for_count_before_they_exist(self) -> None:
        assert counts(scale_spec(8), ScaledFleet([workload(P, 1), workload(D, 6)], []), 9, 9) == (2, 6)

    def test_pods_of_earlier_revisions_count(self) -> None:
        gone: Part = ([], pods(D, 2, "z", gpus=2, ending=2))
        assert counts(scale_spec(8), fleet(revision(1, 1), gone), 9, 9) == (2, 2)
        assert counts(scale_spec(8), fleet(revision(1, 1), revision(2, 1, "z")), 9, 9) == (3, 2)

    def test_a_pod_that_ended_holds_nothing(self) -> None:
        done = PodSummary("x", P, "a", phase="Failed", gpus=4)
        assert counts(scale_spec(8), fleet(revision(1, 1), ([], [done])), 9, 9) == (4, 4)

    def test_pods_that_end_cost_no_pod_its_place(self) -> None:
        """An evicted D pod is replaced at once; that the two overlap is no reason to end another one."""
        evicted = ([workload(P, 4), workload(D, 4)], [*pods(P, 4), *pods(D, 5, ending=1)])
        assert counts(scale_spec(8), fleet(evicted), 4, 4) == (4, 4)

    def test_an_instance_of_several_nodes_counts_with_all_of_them(self) -> None:
        spec = scale_spec(16, p=between(1, 9, parallelism={"tensor": 4, "nodes": 2}), d=between(1, 9, **gpus(4)))
        nodes = [workload(P, 1, gpus=2), workload(P, 1, gpus=2, rank=1), workload(D, 1, gpus=4)]
        assert counts(spec, ScaledFleet(nodes, []), 9, 9) == (2, 2)

    def test_a_node_that_lags_behind_counts_as_if_it_were_there(self) -> None:
        """The operator died between the writes to the two nodes of two new instances."""
        spec = with_gpus(scale_spec(8), p=2)
        for first, second in ((3, 1), (1, 3)):
            nodes = [workload(P, first), workload(P, second, rank=1), workload(D, 1)]
            assert counts(spec, ScaledFleet(nodes, []), 3, 9) == (3, 2)

    def test_a_node_without_workload_counts_as_if_it_were_there(self) -> None:
        spec = with_gpus(scale_spec(8), p=2)
        assert counts(spec, ScaledFleet([workload(P, 3), workload(D, 1)], []), 3, 9) == (3, 2)

    def test_a_role_on_cpu_costs_nothing(self) -> None:
        spec = scale_spec(4, d=between(1, 10, accelerator={"type": "CPU"}))
        there = fleet(([workload(P, 1), workload(D, 1, gpus=0)], pods(P, 1)))
        assert counts(spec, there, 9, 9) == (4, 9)

    def test_a_role_without_autoscaling_has_its_replicas_first(self) -> None:
        spec = scale_spec(8, p={"replicas": 5})
        assert counts(spec, fleet(revision(3, 2)), None, 9) == (5, 3)
        assert counts(spec, fleet(revision(3, 5)), None, 5) == (3, 3)
        assert counts(spec, fleet(revision(3, 3)), None, 5) == (5, 3)
        assert counts(spec, fleet(revision(7, 1)), None, 1) == (5, 1)

    def test_a_higher_minimum_is_taken_from_what_the_other_has_above_its_own(self) -> None:
        spec = scale_spec(8, p=between(4, 10))
        assert counts(spec, fleet(revision(2, 6)), 4, 6) == (2, 4)
        assert counts(spec, fleet(revision(2, 4)), 4, 6) == (4, 4)

    def test_a_lower_budget_takes_pods_away(self) -> None:
        assert counts(scale_spec(6), fleet(revision(5, 4)), 5, 4) == (3, 3)
        assert counts(scale_spec(6, p=between(4, 9)), fleet(revision(5, 4)), 5, 4) == (5, 1)
        assert counts(scale_spec(6), fleet(revision(6, 1)), 6, 1) == (5, 1)

    def test_a_lower_budget_takes_them_from_the_role_with_more_gpus(self) -> None:
        spec = with_gpus(scale_spec(9), p=2)
        assert counts(spec, fleet(([workload(P, 4, gpus=2), workload(D, 5)], [])), 4, 5) == (2, 5)

    def test_minimums_that_do_not_fit_leave_pods_as_they_are(self) -> None:
        """Validation refuses such a spec; one of an earlier version may be stored."""
        spec = ScaleSpec({**scale_spec(8, p=between(3, 9), d=between(3, 9)).roles}, None, 4)
        assert counts(spec, fleet(revision(5, 3)), 5, 5) == (5, 3)

    def test_a_first_revision_is_as_large_as_the_budget_allows(self) -> None:
        spec = scale_spec(5, p=between(1, 9, replicas=4), d=between(1, 9, replicas=4))
        assert counts(spec, fleet(), serving="") == (3, 2)

    def test_the_gpus_in_use_are_those_with_the_allocated_pods(self) -> None:
        found = decide(scale_spec(8), fleet(revision(1, 3)), 2, 1)
        assert (found.replicas[D]["a"], found.used, found.budget) == (1, 5, 8)


class TestBudgetAndRatio:
    def test_gpus_go_to_pods_that_the_ratio_can_use(self) -> None:
        exact = scale_spec(8, ratio={"min": {"decode": 3}, "max": {"decode": 3}})
        assert counts(exact, fleet(revision(1, 1)), 9, 9) == (2, 6)
        assert counts(scale_spec(7, ratio={"min": {}, "max": {}}), fleet(revision(1, 1)), 9, 9) == (3, 3)
        assert counts(scale_spec(7, ratio={"min": {}}), fleet(revision(1, 1)), 1, 9) == (4, 3)

    def test_no_gpu_goes_to_a_pod_that_the_ratio_makes_useless(self) -> None:
        spec = with_gpus(scale_spec(6, ratio={"min": {"decode": 2}}), p=4)
        there = fleet(([workload(P, 1, gpus=4), workload(D, 1)], []))
        assert counts(spec, there, 1, 9) == (1, 2)

    def test_a_ratio_that_was_lost_is_restored_as_far_as_gpus_are_free(self) -> None:
        spec = scale_spec(7, ratio={"min": {"decode": 2}})
        assert counts(spec, fleet(revision(1, 5)), 1, 5) == (2, 5)


class TestLimited:
    @pytest.mark.parametrize(
        ("p", "reason", "allocated", "message"),
        [
            (12, LimitReason.TOO_MANY, 10, "spec.parameter.autoscaling.maxReplicas is 10."),
            (1, LimitReason.TOO_FEW, 2, "spec.parameter.autoscaling.minReplicas is 2."),
        ],
    )
    def test_a_range_limits(self, p: int, reason: LimitReason, allocated: int, message: str) -> None:
        found = decide(scale_spec(None, p=between(2, 10)), fleet(revision(3, 3)), p, 3)
        assert found.limited == {
            P: Limit(reason, p, allocated, f"{p} pods recommended, {allocated} allocated: {message}")
        }

    def test_a_ratio_limits_in_both_directions(self) -> None:
        spec = scale_spec(None, d=between(1, 3), ratio={"max": {"parameter": 2}})
        above = (
            "9 pods recommended, 6 allocated: with spec.autoscaling.ratio, more pods would require more "
            "pods of the other role than its maxReplicas."
        )
        below = "1 pods recommended, 3 allocated: spec.autoscaling.ratio requires them for the pods of the other role."
        assert decide(spec, fleet(revision(3, 1)), 9, 1).limited == {
            P: Limit(LimitReason.RATIO, 9, 6, above),
            D: Limit(LimitReason.RATIO, 1, 3, below),
        }

    def test_a_first_revision_is_limited_by_the_ratio(self) -> None:
        spec = scale_spec(None, d=between(1, 8, replicas=4), ratio={"min": {}})
        limited = decide(spec, fleet(), serving="").limited
        assert [(limit.reason, limit.recommended, limit.allocated) for limit in limited.values()] == [
            (LimitReason.RATIO, 1, 4)
        ]

    def test_a_budget_limits(self) -> None:
        message = "6 pods recommended, 4 allocated: 8 of the 8 GPUs of spec.autoscaling.gpuBudget are in use."
        found = decide(scale_spec(8), fleet(revision(4, 4)), 6, 4)
        assert found.limited == {P: Limit(LimitReason.GPU_BUDGET, 6, 4, message)}

    def test_a_budget_limits_what_the_ratio_wants_beyond_the_recommendation(self) -> None:
        spec = scale_spec(6, ratio={"min": {}, "max": {}})
        limited = decide(spec, fleet(revision(3, 3)), 2, 9).limited
        assert (limited[P].reason, limited[D].reason) == (LimitReason.RATIO, LimitReason.GPU_BUDGET)
        assert list(decide(spec, fleet(revision(3, 3)), 3, 9).limited) == [D]

    def test_a_budget_limits_a_role_without_autoscaling(self) -> None:
        for serving in ("a", ""):
            there = fleet(revision(3, 5))
            limit = decide(scale_spec(8, p={"replicas": 5}), there, None, 5, serving=serving).limited[P]
            assert (limit.reason, limit.recommended, limit.allocated) == (LimitReason.GPU_BUDGET, 5, 3)

    def test_a_recommendation_waits_until_a_revision_serves(self) -> None:
        message = (
            "4 pods recommended, 1 allocated: the recommended count applies when the new revision serves requests."
        )
        found = decide(NONE, fleet(revision(1, 1)), 4, 1, serving="")
        assert found.limited == {P: Limit(LimitReason.STARTING, 4, 1, message)}

    def test_a_count_that_is_recommended_is_not_limited(self) -> None:
        assert decide(scale_spec(8), fleet(revision(1, 1)), 4, 4).limited == {}
