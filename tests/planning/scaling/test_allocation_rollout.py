"""The replica counts of two revisions side by side, and when the target revision may be created."""

from typing import Any

from pdinference.planning.scaling.allocation import Allocation, allocate
from pdinference.planning.scaling.fleet import ScaledFleet
from pdinference.planning.scaling.limited import LimitReason
from pdinference.planning.scaling.scale_spec import ScaleSpec
from tests.planning.scaling.fleets import D, P, Part, between, fleet, pods, revision, scale_spec, with_gpus, workload

NONE = scale_spec(None)
RECREATE: dict[str, Any] = {"rollout": {"strategy": "Recreate"}}


def decide(spec: ScaleSpec, there: ScaledFleet, p: int | None = None, d: int | None = None, **more: Any) -> Allocation:
    return allocate(spec, there, {P: p, D: d}, **{"target": "b", "serving": "a", **more})


def counts(found: Allocation, name: str) -> tuple[int | None, int | None]:
    return found.replicas[P].get(name), found.replicas[D].get(name)


class TestTogether:
    def test_the_target_starts_with_the_count_of_the_serving_revision(self) -> None:
        found = decide(NONE, fleet(revision(3, 5)))
        assert (counts(found, "a"), counts(found, "b")) == ((3, 5), (3, 5))

    def test_both_follow_the_recommendation(self) -> None:
        there = fleet(revision(3, 5), revision(3, 5, "b"))
        for p, d in ((4, 6), (2, 4)):
            found = decide(NONE, there, p, d)
            assert (counts(found, "a"), counts(found, "b")) == ((p, d), (p, d))

    def test_a_target_that_is_behind_catches_up(self) -> None:
        found = decide(NONE, fleet(revision(4, 4), revision(1, 2, "b")))
        assert counts(found, "b") == (4, 4)

    def test_the_range_of_the_new_spec_holds_for_both(self) -> None:
        found = decide(scale_spec(None, p=between(4, 9), d=between(1, 2)), fleet(revision(3, 5)))
        assert (counts(found, "a"), counts(found, "b")) == ((4, 2), (4, 2))

    def test_a_role_without_autoscaling_has_its_replicas_in_the_target(self) -> None:
        spec = scale_spec(None, p={"replicas": 4})
        for there in (fleet(revision(2, 3)), fleet(revision(2, 3), revision(1, 3, "b"))):
            found = decide(spec, there)
            assert (counts(found, "a"), counts(found, "b")) == ((2, 3), (4, 3))

    def test_a_role_that_is_stopped_goes_on_in_the_serving_revision(self) -> None:
        found = decide(scale_spec(None, p=between(1, 9, replicas=0)), fleet(revision(2, 3)))
        assert (counts(found, "a"), counts(found, "b")) == ((2, 3), (0, 3))

    def test_revisions_that_neither_serve_nor_are_asked_for_have_no_entry(self) -> None:
        found = decide(NONE, fleet(revision(2, 2), revision(2, 2, "b"), revision(5, 5, "z")))
        assert set(found.replicas[P]) == set(found.replicas[D]) == {"a", "b"}

    def test_a_serving_revision_that_is_gone_has_no_entry(self) -> None:
        found = decide(NONE, fleet())
        assert (counts(found, "a"), counts(found, "b")) == ((None, None), (1, 1))

    def test_a_revision_without_pods_is_not_started(self) -> None:
        """It slept, or was stopped, when the spec changed."""
        spec = scale_spec(None, p=between(1, 9, replicas=2))
        for p, d in ((0, 0), (0, 3), (3, 0)):
            found = decide(spec, fleet(revision(p, d)), 5, 5)
            assert (counts(found, "a"), counts(found, "b")) == ((p, d), (2, 1))

    def test_a_serving_revision_stays_when_the_target_sleeps(self) -> None:
        found = decide(NONE, fleet(revision(2, 2), revision(1, 1, "b")), 2, 2, asleep=True)
        assert (counts(found, "a"), counts(found, "b")) == ((2, 2), (0, 0))

    def test_half_a_target_gets_its_other_half(self) -> None:
        half: Part = ([workload(P, 2, "b")], pods(P, 2, "b"))
        for budget in (None, 8):
            found = decide(scale_spec(budget), fleet(revision(2, 2), half))
            assert (counts(found, "b"), found.blocked) == ((2, 2), "")


class TestBudget:
    def test_a_target_that_fits_is_created(self) -> None:
        found = decide(scale_spec(8), fleet(revision(2, 2)))
        assert (found.blocked, found.used, counts(found, "b")) == ("", 8, (2, 2))

    def test_a_target_beyond_the_budget_waits_while_the_old_revision_scales(self) -> None:
        found = decide(scale_spec(8), fleet(revision(3, 2)), 3, 3)
        assert (counts(found, "a"), counts(found, "b"), found.used) == ((3, 3), (3, 3), 6)
        assert found.blocked == (
            "The new revision needs 6 GPUs, 6 are in use, and spec.autoscaling.gpuBudget is 8. Raise it to 12 "
            "until the roll-out is complete, or set spec.rollout.strategy to Recreate, which deletes the old revision "
            "first."
        )
        assert decide(scale_spec(12), fleet(revision(3, 3)), 3, 3).blocked == ""

    def test_a_blocked_target_takes_nothing_from_the_serving_revision(self) -> None:
        found = decide(scale_spec(8), fleet(revision(3, 2)), 9, 2)
        assert counts(found, "a") == (6, 2)

    def test_the_target_comes_before_growth(self) -> None:
        found = decide(scale_spec(8), fleet(revision(2, 2)), 4, 4)
        assert (found.blocked, counts(found, "a"), counts(found, "b")) == ("", (2, 2), (2, 2))

    def test_the_target_starts_with_what_remains_of_a_role_that_shrinks(self) -> None:
        found = decide(scale_spec(8), fleet(revision(3, 2)), 1, 2)
        assert (found.blocked, counts(found, "a"), counts(found, "b")) == ("", (1, 2), (1, 2))

    def test_growth_costs_gpus_for_both_revisions(self) -> None:
        there = fleet(revision(1, 1), revision(1, 1, "b", gpus=2))
        spec = with_gpus(scale_spec(11), p=2, d=2)
        found = decide(spec, there, 9, 1)
        assert (counts(found, "a"), counts(found, "b")) == ((2, 1), (2, 1))
        assert found.limited[P].reason is LimitReason.GPU_BUDGET
        assert found.limited[P].message == (
            "9 pods recommended, 2 allocated: 9 of the 11 GPUs of spec.autoscaling.gpuBudget are in use. During the "
            "roll-out, each additional pod needs GPUs in both revisions."
        )

    def test_a_target_that_is_behind_catches_up_before_growth(self) -> None:
        there = fleet(revision(2, 2), revision(1, 2, "b"))
        found = decide(scale_spec(8), there, 2, 4)
        assert (counts(found, "a"), counts(found, "b")) == ((2, 2), (2, 2))

    def test_pods_of_a_third_revision_count(self) -> None:
        there = fleet(revision(2, 2), revision(1, 1, "z"))
        assert decide(scale_spec(9), there).blocked
        assert not decide(scale_spec(10), there).blocked

    def test_a_lower_budget_shrinks_both_revisions(self) -> None:
        there = fleet(revision(3, 3), revision(3, 3, "b"))
        found = decide(scale_spec(8), there, 3, 3)
        assert (counts(found, "a"), counts(found, "b")) == ((2, 2), (2, 2))

    def test_a_third_revision_costs_no_pod_its_place(self) -> None:
        there = fleet(revision(3, 3), revision(4, 4, "z"))
        found = decide(scale_spec(8), there, 3, 3)
        assert counts(found, "a") == (3, 3)
        assert found.blocked

    def test_a_role_without_autoscaling_needs_its_replicas(self) -> None:
        assert not decide(scale_spec(8, p={"replicas": 2}), fleet(revision(3, 1))).blocked
        assert "needs 3 GPUs, 4 are in use" in decide(scale_spec(6, p={"replicas": 2}), fleet(revision(3, 1))).blocked


class TestRecreate:
    def test_the_target_waits_for_the_old_pods_and_starts_with_replicas(self) -> None:
        spec = scale_spec(4, p=between(1, 9, replicas=2), **RECREATE)
        ending: Part = ([], [*pods(P, 2, ending=2), *pods(D, 2, ending=2)])
        assert decide(spec, fleet(revision(2, 2)), 2, 2).blocked
        assert decide(spec, fleet(ending), 2, 2).blocked == (
            "The new revision needs 3 GPUs, 4 are in use, and spec.autoscaling.gpuBudget is 4. It starts when the "
            "remaining pods have ended."
        )
        found = decide(spec, fleet(), 3, 2)
        assert (found.blocked, counts(found, "b")) == ("", (2, 1))

    def test_the_old_revision_keeps_its_pods_until_it_is_deleted(self) -> None:
        found = decide(scale_spec(4, **RECREATE), fleet(revision(2, 2)), 4, 1)
        assert counts(found, "a") == (2, 2)

    def test_the_recommendation_applies_when_the_new_revision_serves(self) -> None:
        spec, there = scale_spec(None, **RECREATE), fleet(revision(1, 1, "b"))
        assert counts(decide(spec, there, 5, 3), "b") == (1, 1)
        assert decide(spec, there, 5, 3).limited[P].reason is LimitReason.STARTING
        assert counts(decide(spec, there, 5, 3, serving="b"), "b") == (5, 3)

    def test_a_first_revision_that_failed_gives_its_gpus_to_its_correction(self) -> None:
        there = fleet(revision(2, 2))
        found = decide(scale_spec(4), there, serving="")
        assert "when the remaining pods have ended" in found.blocked
        assert (counts(found, "a"), counts(found, "b")) == ((None, None), (1, 1))
