"""Two HPAs that know nothing of each other keep the ratio and the budget, whenever each of them acts."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pdinference.planning.scaling.bounds import BudgetTooSmallError, Cause, Range, Standing, bounds

from pdinference.planning.scaling.ratio import Ratio


def standing(live: int, minimum: int = 1, maximum: int = 10, gpus: int = 1, **more: int | bool) -> Standing:
    return Standing(live, minimum, maximum, gpus, **more)


def ratio(minimum: str, maximum: str) -> Ratio:
    return Ratio(Fraction(minimum), Fraction(maximum))


def test_without_ratio_and_budget_the_user_decides() -> None:
    assert bounds(standing(3), standing(4, minimum=2)) == (Range(1, 10), Range(2, 10))


class TestRatio:
    def test_a_role_that_grows_pulls_the_other_along(self) -> None:
        p, d = bounds(standing(6), standing(1), ratio=ratio("1", "2"))
        assert d.minimum == 3
        assert p == Range(1, 10)

    def test_no_role_outgrows_what_the_other_can_follow(self) -> None:
        p, d = bounds(standing(1), standing(1, maximum=3), ratio=ratio("1", "2"))
        assert p.maximum == 6
        assert d.maximum == 3

    def test_a_role_without_work_stays_while_the_other_works(self) -> None:
        p, _ = bounds(standing(4, wanted=1), standing(4, wanted=4), ratio=ratio("1", "1"))
        assert p.minimum == 4

    def test_both_go_down_when_both_want_to(self) -> None:
        p, d = bounds(standing(4, wanted=1), standing(4, wanted=3), ratio=ratio("1", "1"))
        assert (p.minimum, d.minimum) == (3, 3)

    def test_a_role_whose_load_is_unknown_is_left_alone(self) -> None:
        p, d = bounds(standing(4, wanted=1), standing(4), ratio=ratio("1", "1"))
        assert (p.minimum, d.minimum) == (4, 4)

    def test_the_user_s_minimum_and_maximum_go_before_the_ratio(self) -> None:
        p, d = bounds(standing(8, minimum=8), standing(1, maximum=2), ratio=ratio("1", "1"))
        assert p == Range(8, 8)
        assert d == Range(2, 2)

    def test_a_narrow_ratio_does_not_drive_both_to_the_maximum(self) -> None:
        assert _settle(
            standing(1, maximum=100), standing(1, maximum=100), ratio("101/100", "102/100"), None, (1, 1)
        ) == (
            2,
            1,
        )


class TestBudget:
    def test_the_rest_is_shared(self) -> None:
        p, d = bounds(standing(1, granted=1), standing(1, granted=1), budget=8)
        assert (p.maximum, d.maximum) == (4, 4)

    def test_it_goes_to_the_role_that_wants_more(self) -> None:
        p, d = bounds(standing(2, granted=2), standing(1, granted=1, wanted=9), budget=8)
        assert (p.maximum, d.maximum) == (2, 6)

    def test_it_is_not_handed_over_before_the_other_has_let_go(self) -> None:
        p, d = bounds(standing(2, granted=6), standing(2, granted=2, wanted=9), budget=8)
        assert p.maximum == 2
        assert d.maximum == 2, "P may still start its sixth pod"
        _, d = bounds(standing(2, granted=2), standing(2, granted=2, wanted=9), budget=8)
        assert d.maximum == 6

    def test_a_pod_that_is_about_to_go_still_holds_its_gpus(self) -> None:
        _, d = bounds(standing(6, granted=2), standing(2, granted=2, wanted=9), budget=8)
        assert d.maximum == 2

    def test_a_lower_budget_takes_pods_away(self) -> None:
        p, d = bounds(standing(6, gpus=2, granted=6), standing(4, granted=4), budget=8)
        assert 2 * p.maximum + d.maximum <= 8

    def test_minimums_beyond_it_are_refused(self) -> None:
        with pytest.raises(BudgetTooSmallError):
            bounds(standing(3, minimum=3, gpus=2), standing(3, minimum=3), budget=8)


class TestOddities:
    def test_a_role_without_gpus_has_all_the_pods_that_it_may_have(self) -> None:
        p, d = bounds(standing(1), standing(1, gpus=0), budget=4)
        assert (p.maximum, d.maximum) == (4, 10)

    def test_a_role_that_is_stopped_stays_so(self) -> None:
        p, d = bounds(Standing(0, 0, 0), standing(1), budget=4)
        assert (p, d) == (Range(0, 0), Range(1, 4))

    def test_half_a_band(self) -> None:
        p, d = bounds(standing(1), standing(6), ratio=Ratio(minimum=Fraction(1, 2)))
        assert (p.minimum, d.minimum) == (3, 1)
        p, d = bounds(standing(6), standing(1), ratio=Ratio(maximum=Fraction(2)))
        assert (p.minimum, d.minimum) == (1, 3)

    def test_the_cause_is_what_would_have_to_change(self) -> None:
        p, d = bounds(standing(1), standing(1, maximum=3), ratio=ratio("1", "2"), budget=100)
        assert (p.cause, d.cause) == (Cause.RATIO, None)
        p, d = bounds(standing(1), standing(1, maximum=3), ratio=ratio("1", "2"), budget=4)
        assert (p.cause, d.cause) == (Cause.GPU_BUDGET, Cause.GPU_BUDGET)

    def test_a_division_that_suffices_stays(self) -> None:
        p, d = bounds(standing(1, allowed=2, granted=2), standing(4, allowed=6, granted=6), budget=8)
        assert (p.maximum, d.maximum) == (2, 6)

    def test_the_least_pair_within_a_band(self) -> None:
        assert ratio("2", "2").least(5, 1) == (6, 3)
        assert Ratio().least(5, 1) == (5, 1)


unhurried = settings(deadline=None)

_gpus = st.sampled_from((1, 2, 4))
_counts = st.integers(1, 12)
_ratios = st.none() | st.builds(
    lambda low, more: Ratio(low, low + more),
    st.fractions(Fraction(1, 4), 4, max_denominator=8),
    st.fractions(0, 2, max_denominator=8),
)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[Standing, Standing, int]:
    """Two roles at their minimum, and a budget in which they fit."""
    p, d = (
        Standing(low, low, low + draw(st.integers(0, 10)), draw(_gpus))
        for low in (draw(st.integers(1, 3)) for _ in "PD")
    )
    return p, d, p.gpus * p.live + d.gpus * d.live + draw(st.integers(0, 24))


@unhurried
@given(_pairs(), _ratios, st.lists(st.tuples(st.sampled_from("pdo"), _counts, st.integers(0, 2)), max_size=40))
def test_no_interleaving_of_operator_and_stale_hpas_exceeds_the_budget(
    pair: tuple[Standing, Standing, int], band: Ratio | None, acts: list[tuple[str, int, int]]
) -> None:
    p, d, budget = pair
    roles = {"p": p, "d": d}
    # What each HPA may still act by, oldest first; the operator knows of these, and of nothing else.
    told: dict[str, list[Range]] = {"p": [Range(p.live, p.live)], "d": [Range(d.live, d.live)]}
    for actor, number, age in acts:
        if actor == "o":
            for role, new in zip("pd", bounds(roles["p"], roles["d"], ratio=band, budget=budget), strict=True):
                told[role] = [*told[role], new][-3:]
        else:
            by = told[actor][max(0, len(told[actor]) - 1 - age)]
            roles[actor] = replace(
                roles[actor],
                live=min(max(number, by.minimum), by.maximum),
                wanted=number,
            )
        for role, known in told.items():
            granted = max(rule.maximum for rule in known)
            roles[role] = replace(roles[role], allowed=known[-1].maximum, granted=granted)
        assert sum(role.gpus * role.live for role in roles.values()) <= budget


def _settle(
    p: Standing, d: Standing, band: Ratio | None, budget: int | None, wants: tuple[int, int]
) -> tuple[int, int]:
    """Operator and HPAs take turns until nothing changes any more."""
    for _ in range(100):
        new = bounds(p, d, ratio=band, budget=budget)
        before = (p, d)
        p, d = (
            replace(
                role,
                live=min(max(want, rule.minimum), rule.maximum),
                allowed=rule.maximum,
                granted=rule.maximum,
                wanted=want,
            )
            for role, rule, want in zip((p, d), new, wants, strict=True)
        )
        if (p, d) == before:
            return p.live, d.live
    raise AssertionError(f"still moving: {p}, {d}, {new}")


@unhurried
@given(_pairs(), _ratios, st.booleans(), _counts, _counts)
def test_with_a_steady_load_everything_comes_to_rest_within_all_limits(
    pair: tuple[Standing, Standing, int], band: Ratio | None, with_budget: bool, want_p: int, want_d: int
) -> None:
    p, d, budget = pair
    live_p, live_d = _settle(p, d, band, budget if with_budget else None, (want_p, want_d))
    assert p.minimum <= live_p <= p.maximum
    assert d.minimum <= live_d <= d.maximum
    if with_budget:
        assert p.gpus * live_p + d.gpus * live_d <= budget
    elif not band:
        assert (live_p, live_d) == (min(max(want_p, p.minimum), p.maximum), min(max(want_d, d.minimum), d.maximum))


@unhurried
@given(
    st.tuples(_counts, _counts),
    st.tuples(_counts, _counts),
    st.fractions(Fraction(1, 4), 4, max_denominator=8),
    st.fractions(0, 2, max_denominator=8),
)
def test_the_ratio_is_restored_to_the_next_whole_pod(
    live: tuple[int, int], wants: tuple[int, int], low: Fraction, more: Fraction
) -> None:
    band = Ratio(low, low + more)
    p, d = (Standing(count, 1, 200) for count in live)
    p_count, d_count = _settle(p, d, band, None, wants)
    assert low * d_count <= p_count < (low + more) * d_count + 1
    assert p_count >= wants[0]
    assert d_count >= wants[1]
