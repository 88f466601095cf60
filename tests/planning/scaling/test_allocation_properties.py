"""Invariants of replica counts for all specs, existing objects and recommendations."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import PodSummary, WorkloadState
from pdinference.planning.scaling.allocation import Allocation, allocate
from pdinference.planning.scaling.fleet import ScaledFleet
from pdinference.planning.scaling.ratio import Ratio
from pdinference.planning.scaling.scale_spec import RoleScale, ScaleSpec
from tests.planning.scaling.fleets import D, P, fleet, workload

REVISIONS = ("a", "b", "c")
_gpus = st.sampled_from((0, 1, 2, 8))
_counts = st.integers(0, 14)
_recommended = st.fixed_dictionaries(dict.fromkeys(ENGINE_ROLES, st.none() | st.integers(1, 30)))


@st.composite
def _role(draw: st.DrawFn) -> RoleScale:
    low = draw(st.integers(1, 5))
    if draw(st.sampled_from((True, True, False))):
        return RoleScale(draw(st.integers(1, 12)), low, low + draw(st.integers(0, 10)), draw(_gpus))
    return RoleScale.fixed(draw(st.integers(0, 8)), draw(_gpus))


@st.composite
def _ratios(draw: st.DrawFn) -> Ratio:
    low, more = draw(st.fractions(Fraction(1, 8), 8, max_denominator=8)), draw(st.fractions(0, 8, max_denominator=8))
    return draw(st.sampled_from((Ratio(low, low + more), Ratio(low), Ratio(None, low))))


@st.composite
def _specs(draw: st.DrawFn) -> ScaleSpec:
    """Also those that validation refuses."""
    roles = {role: draw(_role()) for role in ENGINE_ROLES}
    return ScaleSpec(roles, draw(st.none() | _ratios()), draw(st.none() | st.integers(1, 60)), draw(st.booleans()))


@st.composite
def _valid_specs(draw: st.DrawFn, *, ratio: bool | None = None, budget: bool | None = None) -> ScaleSpec:
    """Those that validation lets pass, with or without ratio and budget; None for any."""
    scaled = RoleScale(1, 1, 1)
    roles = {role: draw(_role()) for role in ENGINE_ROLES}
    least = {role: scale.minimum for role, scale in roles.items()}
    band = None
    if ratio or (ratio is None and draw(st.booleans()) and all(scale.autoscaled for scale in roles.values())):
        band = draw(_ratios())
        least = dict(zip(ENGINE_ROLES, band.least(least[P], least[D]), strict=True))
        roles = {
            role: replace(
                scaled,
                initial=scale.initial,
                minimum=scale.minimum,
                maximum=max(least[role], scale.maximum),
                gpus=scale.gpus,
            )
            for role, scale in roles.items()
        }
    gpus = sum(least[role] * scale.gpus for role, scale in roles.items())
    limited = draw(st.booleans()) if budget is None else budget
    return ScaleSpec(roles, band, gpus + draw(st.integers(0, 60)) if limited else None, draw(st.booleans()))


@st.composite
def _fleets(draw: st.DrawFn) -> ScaledFleet:
    places = draw(st.sets(st.tuples(st.sampled_from(ENGINE_ROLES), st.sampled_from(REVISIONS), st.integers(0, 1))))
    workloads = [
        WorkloadState(f"{role}-{name}-{rank}", role, name, desired=draw(_counts), gpus=draw(_gpus), node_rank=rank)
        for role, name, rank in sorted(places)
    ]
    pods = st.builds(
        PodSummary,
        st.just("p"),
        st.sampled_from(ENGINE_ROLES),
        st.sampled_from(REVISIONS),
        gpus=_gpus,
        terminating=st.booleans(),
        node_rank=st.integers(0, 1),
    )
    return ScaledFleet(workloads, draw(st.lists(pods, max_size=6)))


_serving = st.sampled_from(("", *REVISIONS))


@given(_specs(), _fleets(), _recommended, st.tuples(st.sampled_from(REVISIONS), _serving, st.booleans()))
@example(ScaleSpec({P: RoleScale(2, 2, 2, 1), D: RoleScale(1, 1, 2, 0)}, None, 1), fleet(), {}, ("a", "", False))
def test_every_state_has_an_allocation(
    spec: ScaleSpec, there: ScaledFleet, recommended: dict[Role, int | None], situation: tuple[str, str, bool]
) -> None:
    target, serving, asleep = situation
    found = allocate(spec, there, recommended, target=target, serving=serving, asleep=asleep)
    for role in ENGINE_ROLES:
        counts = found.replicas[role]
        assert set(counts) == {target} | ({serving} if there.has(role, serving) else set())
        assert 0 <= counts[target] <= (0 if asleep else max(spec.roles[role].maximum, spec.roles[role].initial))
    assert not (found.blocked and target in there.revisions)


@st.composite
def _worlds(
    draw: st.DrawFn, specs: st.SearchStrategy[ScaleSpec] | None = None, *, rolls_out: bool = False, calm: bool = False
) -> tuple[ScaleSpec, ScaledFleet, dict[Role, int | None], str]:
    """A valid spec, revisions with its GPUs, a recommendation, and the serving revision; the target is `a`.

    `rolls_out`: `b` serves. `calm`: each role has its minimum, and the budget is not exceeded.
    """
    spec = draw(specs if specs is not None else _valid_specs())
    names = draw(st.sets(st.sampled_from(REVISIONS))) | ({"b"} if rolls_out else {"a"} if calm else set())
    least = {role: scale.minimum if calm else 1 if rolls_out else 0 for role, scale in spec.roles.items()}
    workloads = [
        workload(role, least[role] + draw(_counts), name, gpus=scale.gpus)
        for name in sorted(names)
        for role, scale in spec.roles.items()
    ]
    ending = [
        PodSummary("p", role, "z", gpus=scale.gpus, terminating=True)
        for role, scale in spec.roles.items()
        for _ in range(draw(st.integers(0, 2)))
    ]
    if calm and spec.budget is not None:
        spec = replace(spec, budget=max(spec.budget, sum(one.desired * one.gpus for one in workloads)))
    serving = "b" if rolls_out else draw(st.sampled_from(("", "a", "b")))
    return spec, ScaledFleet(workloads, ending), draw(_recommended), serving


World = tuple[ScaleSpec, ScaledFleet, dict[Role, int | None], str]


def _decide(world: World) -> Allocation:
    spec, there, recommended, serving = world
    return allocate(spec, there, recommended, target="a", serving=serving)


def _gpus_after(world: World, found: Allocation) -> int:
    """GPUs with the new counts while pods that are to go still exist."""
    spec, there, *_ = world
    total = there.uncounted_gpus
    for role in ENGINE_ROLES:
        for name in {*there.revisions, *([] if found.blocked else ["a"])}:
            count = there.instances(role, name)
            total += max(count, found.replicas[role].get(name, count)) * spec.roles[role].gpus
    return total


def _applied(world: World, found: Allocation) -> World:
    """The world with these counts, while the pods that go are still there."""
    spec, there, recommended, serving = world
    workloads, pods = [], list(there._pods)
    for role in ENGINE_ROLES:
        for name in {*there.revisions, *([] if found.blocked else ["a"])}:
            before, gpus = there.instances(role, name), spec.roles[role].gpus
            after = found.replicas[role].get(name, before)
            workloads.append(workload(role, after, name, gpus=gpus))
            pods += [PodSummary("p", role, name, gpus=gpus, terminating=True) for _ in range(before - after)]
    return spec, ScaledFleet(workloads, pods), recommended, serving


@given(_worlds())
def test_growth_never_exceeds_the_budget(world: World) -> None:
    found = _decide(world)
    before = _gpus_after(world, Allocation({role: {} for role in ENGINE_ROLES}, blocked="-"))
    if world[0].budget is not None:
        assert _gpus_after(world, found) <= max(before, world[0].budget)
    assert found.used == _gpus_after(world, found)


@given(_worlds())
def test_nothing_changes_until_something_happens(world: World) -> None:
    """Neither at once, nor with the pods of before still ending."""
    found = _decide(world)
    again = _decide(_applied(world, found))
    assert again.replicas == found.replicas
    told = [role for role in ENGINE_ROLES if world[2][role] is not None]
    assert [again.limited.get(role) for role in told] == [found.limited.get(role) for role in told]
    assert bool(again.blocked) == bool(found.blocked)


@given(_worlds(calm=True))
def test_no_count_falls_but_by_recommendation_or_spec(world: World) -> None:
    """A role never loses pods to the other one's growth: with a budget it has at least what it keeps without one."""
    spec, there, _, serving = world
    unlimited = _decide((replace(spec, budget=None), *world[1:]))
    found = _decide(world)
    for role in ENGINE_ROLES:
        for name in {"a", serving} & set(there.revisions):
            live = there.instances(role, name)
            assert found.replicas[role][name] >= min(live, unlimited.replicas[role][name])


@given(_worlds())
def test_a_budget_never_adds_pods(world: World) -> None:
    found, unlimited = _decide(world), _decide((replace(world[0], budget=None), *world[1:]))
    for role in ENGINE_ROLES:
        for name, count in found.replicas[role].items():
            assert count <= unlimited.replicas[role][name]


@given(_worlds(_valid_specs(ratio=False, budget=True)), st.sampled_from(ENGINE_ROLES), st.integers(1, 10))
def test_a_role_gets_no_fewer_for_a_higher_recommendation(world: World, role: Role, more: int) -> None:
    spec, there, recommended, serving = world
    low = recommended[role] or 1
    first, second = (
        _decide((spec, there, {**recommended, role: count}, serving)).replicas[role] for count in (low, low + more)
    )
    for name, count in first.items():
        assert second[name] >= count


@given(_worlds(rolls_out=True))
def test_both_revisions_of_an_autoscaled_role_have_the_same_count(world: World) -> None:
    """Without a budget at once, with one from the target's first pods on: traffic never moves to too few pods."""
    spec, there, *_ = world
    if spec.recreates:
        return
    for found in (
        _decide((replace(spec, budget=None), *world[1:])),
        *([_decide(world)] if "a" not in there.revisions else []),
    ):
        for role, scale in spec.roles.items():
            assert not scale.autoscaled or found.replicas[role]["a"] == found.replicas[role]["b"]


_wants = st.fixed_dictionaries(dict.fromkeys(ENGINE_ROLES, st.integers(1, 30)))


def _minimal(spec: ScaleSpec) -> ScaledFleet:
    """A revision with its minimums."""
    return fleet(([workload(role, scale.minimum, gpus=scale.gpus) for role, scale in spec.roles.items()], []))


@given(_valid_specs(ratio=True), _wants)
def test_the_ratio_holds_to_the_next_whole_pod(spec: ScaleSpec, wants: dict[Role, int]) -> None:
    assert spec.ratio is not None
    found = allocate(replace(spec, budget=None), fleet(), wants, target="a", serving="a").replicas
    count = {role: found[role]["a"] for role in ENGINE_ROLES}
    for role, other in ((P, D), (D, P)):
        assert count[other] >= spec.ratio.companions(role, count[role])
        assert count[role] >= min(spec.roles[role].within(wants[role]), spec.most_by_ratio(role))


@given(_valid_specs(ratio=True, budget=True), _wants)
def test_with_a_budget_no_pod_is_without_its_companions(spec: ScaleSpec, wants: dict[Role, int]) -> None:
    """From the minimums on, each further pod can be used within the ratio."""
    assert spec.ratio is not None
    found = allocate(spec, _minimal(spec), wants, target="a", serving="a").replicas
    count = {role: found[role]["a"] for role in ENGINE_ROLES}
    for role, other in ((P, D), (D, P)):
        if count[role] > spec.roles[role].minimum:
            needed = spec.ratio.companions(role, count[role])
            assert (
                count[other] >= needed
                or count[role] <= spec.ratio.least(*(spec.roles[one].minimum for one in ENGINE_ROLES))[role is D]
            )
