"""Replica counts of a spec, and their maximum possible values."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdinference.planning.scaling.ratio import Ratio
from pdinference.planning.scaling.scale_spec import RoleScale, ScaleSpec
from tests.planning.scaling.fleets import D, P, between, most_possible, scale_spec, with_gpus


class TestFromSpec:
    def test_a_role_without_autoscaling_has_one_number(self) -> None:
        spec = scale_spec(None, p={"replicas": 3}, d={})
        assert spec == ScaleSpec({P: RoleScale(3, 3, 3, 1, False), D: RoleScale(1, 1, 1, 1, False)})

    def test_an_autoscaled_role_has_a_range(self) -> None:
        spec = scale_spec(9, p=between(2, 6, replicas=3, parallelism={"tensor": 1, "pipeline": 2}))
        assert spec.roles[P] == RoleScale(3, 2, 6, 2)
        assert spec.roles[P].autoscaled
        assert spec.budget == 9

    def test_replicas_zero_stops_an_autoscaled_role(self) -> None:
        assert scale_spec(None, p=between(2, 6, replicas=0)).roles[P] == RoleScale.fixed(0)

    def test_a_spec_without_joint_limits_has_none(self) -> None:
        spec = scale_spec(None)
        assert (spec.ratio, spec.budget, spec.recreates) == (None, None, False)
        assert scale_spec(None, rollout={"strategy": "Recreate"}).recreates

    def test_a_ratio_is_p_for_one_d(self) -> None:
        band = {"min": {"parameter": 1, "decode": 3}, "max": {"parameter": 2}}
        assert scale_spec(None, ratio=band).ratio == Ratio(Fraction(1, 3), Fraction(2))
        assert scale_spec(None, ratio={"min": {"decode": 3}}).ratio == Ratio(Fraction(1, 3), None)
        assert scale_spec(None, p=between(1, 9, replicas=0), ratio=band).ratio is None


class TestMostPossible:
    @pytest.mark.parametrize(
        ("budget", "more", "most"),
        [
            (None, {}, (10, 10)),
            (8, {}, (7, 7)),
            (8, {"d": between(3, 10)}, (5, 7)),
            (8, {"d": {"replicas": 3}}, (5, 3)),
            (8, {"ratio": {"max": {}}}, (4, 7)),
            (8, {"ratio": {"min": {"decode": 3}}}, (7, 6)),
            (None, {"d": between(1, 3), "ratio": {"max": {"parameter": 2}}}, (6, 3)),
        ],
    )
    def test_range_ratio_and_budget_limit_it(
        self, budget: int | None, more: dict[str, Any], most: tuple[int, int]
    ) -> None:
        spec = scale_spec(budget, **more)
        assert (most_possible(spec, P), most_possible(spec, D)) == most
        if budget is None:
            assert (spec.most_by_ratio(P), spec.most_by_ratio(D)) == most

    def test_gpus_of_an_instance_count(self) -> None:
        spec = with_gpus(scale_spec(12), p=4, d=2)
        assert (most_possible(spec, P), most_possible(spec, D)) == (2, 4)
        assert most_possible(with_gpus(scale_spec(4), d=0), D) == 10

    def test_a_budget_below_the_minimums_leaves_those(self) -> None:
        spec = ScaleSpec({P: RoleScale(2, 2, 5), D: RoleScale(3, 3, 5)}, None, 2)
        assert (most_possible(spec, P), most_possible(spec, D)) == (2, 3)


_bounds = st.none() | st.fractions(Fraction(1, 4), 4, max_denominator=8)


class TestRatio:
    def test_the_least_counts_within_a_band(self) -> None:
        assert Ratio(Fraction(2), Fraction(2)).least(5, 1) == (6, 3)
        assert Ratio().least(5, 1) == (5, 1)
        assert Ratio(Fraction(101, 100), Fraction(102, 100)).least(1, 1) == (2, 1)

    def test_a_band_that_no_counts_keep_is_refused(self) -> None:
        with pytest.raises(ValueError, match="between 2 and 1"):
            Ratio(Fraction(2), Fraction(1)).least(1, 1)
        assert not Ratio(Fraction(2), Fraction(1)).possible
        assert Ratio(Fraction(2), Fraction(2)).possible

    def test_no_pods_need_none(self) -> None:
        ratio = Ratio(Fraction(1, 3), Fraction(1, 3))
        assert (ratio.companions(P, 0), ratio.companions(D, 0)) == (0, 0)
        assert (ratio.companions(P, 1), ratio.companions(P, 2), ratio.companions(D, 4)) == (1, 4, 2)


@given(_bounds, _bounds, st.integers(0, 30), st.integers(0, 30))
def test_the_least_counts_are_within_and_none_smaller_are(
    low: Fraction | None, high: Fraction | None, p: int, d: int
) -> None:
    ratio = Ratio(low, high)
    if not ratio.possible:
        return

    def within(p: int, d: int) -> bool:
        return p >= ratio.p_for(d) and d >= ratio.d_for(p)

    least_p, least_d = ratio.least(p, d)
    assert within(least_p, least_d)
    assert least_p >= p
    assert least_d >= d
    assert not (least_p > p and within(least_p - 1, least_d))
    assert not (least_d > d and within(least_p, least_d - 1))
