"""Whatever the spec says, and whatever is there, P and D get bounds: a reconcile never hangs, and never fails."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st
from pdinference.planning.scaling.coordination import coordinate
from pdinference.planning.scaling.limits import Limits
from pdinference.planning.scaling.replicas import ScaleRange

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import AutoscalerState, Grant, PodSummary, Verdict, WorkloadState
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.ratio import Ratio

P, D = Role.PARAMETER, Role.DECODE
NOW = datetime(2026, 11, 21, tzinfo=UTC)
REVISIONS = ("r0", "r1", "r2")
LIMITED = (None, Verdict("True", "TooManyReplicas"), Verdict("True", "TooFewReplicas"))

_gpus = st.sampled_from((0, 1, 2, 8))
_most = st.sampled_from((2, 12, 1000))


@st.composite
def _any_limits(draw: st.DrawFn) -> Limits:
    """Also those whose minimums do not fit into the budget, which validation refuses."""
    most = draw(_most)
    scaled = frozenset(draw(st.sets(st.sampled_from(ENGINE_ROLES))))
    counts = {}
    for role in ENGINE_ROLES:
        low = draw(st.integers(1, most))
        range_ = ScaleRange(draw(st.integers(1, most)), low, draw(st.integers(low, most)))
        counts[role] = range_ if role in scaled else ScaleRange.fixed(draw(st.integers(0, most)))
    least, more = (draw(st.fractions(Fraction(1, 100), 100, max_denominator=100)) for _ in range(2))
    ratio = draw(
        st.sampled_from((None, Ratio(least, least), Ratio(least, least + more), Ratio(None, least), Ratio(least)))
    )
    budget = draw(st.none() | st.integers(1, 24) | st.integers(1, 100_000))
    return Limits(ratio, budget, {role: draw(_gpus) for role in ENGINE_ROLES}, counts, scaled, draw(st.booleans()))


@st.composite
def _fleets(draw: st.DrawFn) -> Fleet:
    most = draw(_most)
    places = draw(st.sets(st.tuples(st.sampled_from(ENGINE_ROLES), st.sampled_from(REVISIONS))))
    workloads = [
        WorkloadState(f"{role}-{revision}", role, revision, desired=draw(st.integers(0, most)), gpus=draw(_gpus))
        for role, revision in sorted(places)
    ]
    pods = st.builds(
        PodSummary,
        st.just("p"),
        st.sampled_from(ENGINE_ROLES),
        st.sampled_from(REVISIONS),
        gpus=_gpus,
        terminating=st.booleans(),
    )
    return Fleet(workloads, draw(st.lists(pods, max_size=6)))


@st.composite
def _hpas(draw: st.DrawFn) -> dict[Role, AutoscalerState | None]:
    found: dict[Role, AutoscalerState | None] = {}
    for role in ENGINE_ROLES:
        maximum, seen, wants, before = (draw(st.integers(1, 1000)) for _ in range(4))
        grant = Grant(before, NOW + timedelta(seconds=draw(st.sampled_from((-1, 1)))))
        hpa = AutoscalerState(
            f"{role}-{draw(st.sampled_from(REVISIONS))}",
            draw(st.integers(1, maximum)),
            maximum,
            draw(st.sampled_from((None, grant))),
            judged=True,
            replicas=seen,
            desired=wants,
            momentary=wants,
            active=Verdict("True", "ValidMetricFound"),
            limited=draw(st.sampled_from(LIMITED)),
        )
        found[role] = draw(st.sampled_from((None, hpa)))
    return found


TOO_SMALL = Limits(None, 1, {P: 1, D: 0}, {P: ScaleRange(2, 2, 2), D: ScaleRange(1, 1, 2)}, frozenset(ENGINE_ROLES))
"""P alone has not enough, and fewer D, without GPUs, would free none."""


@given(_any_limits(), _fleets(), _hpas(), st.sampled_from(REVISIONS), st.sampled_from(("", *REVISIONS)))
@example(TOO_SMALL, Fleet([], []), {}, "r0", "")
def test_there_are_bounds(
    limits: Limits, fleet: Fleet, hpas: dict[Role, AutoscalerState | None], target: str, followed: str
) -> None:
    own = {role: hpa for role, hpa in hpas.items() if role in limits.scaled}
    found = coordinate(limits, fleet, own, target=target, followed=followed, now=NOW)
    for role in limits.scaled:
        bounds = found.ranges[role]
        assert 1 <= bounds.minimum <= bounds.maximum <= limits.counts[role].maximum
        assert found.most[role] >= 0
