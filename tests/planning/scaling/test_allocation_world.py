"""Scalers, edits, roll-outs, evictions, slow pods, an operator that dies at any write: the budget and the pods hold."""

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.scaling.ratio import Ratio
from pdinference.planning.scaling.scale_spec import RoleScale, ScaleSpec
from tests.planning.scaling.allocation_world import AllocationWorld, Place

P, D = Role.PARAMETER, Role.DECODE
ACTS = (
    *("reconcile", "reconcile", "dies", "recommend", "recommend", "recommend", "controllers", "pods", "look"),
    *("end", "end", "evict", "edit", "undo", "switch", "prune", "sleep", "wake"),
)
Act = tuple[str, Role, int]


def act(world: AllocationWorld, what: str, role: Role, number: int) -> None:
    match what:
        case "reconcile":
            world.reconcile()
        case "dies":
            world.reconcile(writes=number % 4)
            world.look()  # the next operator lists everything
        case "recommend":
            world.recommend(role, max(1, number))
        case "controllers":
            world.controllers()
        case "pods":
            world.controllers(limit=1)
        case "end":
            world.end(number)
        case "sleep" | "wake":
            world.sleep(what == "sleep")
        case "evict":
            world.evict(role)
        case "edit":
            world.edit(number)
        case _:
            getattr(world, what)()


@st.composite
def _worlds(draw: st.DrawFn) -> AllocationWorld:
    nodes = draw(st.sampled_from((1, 1, 2)))
    gpus = {P: nodes * draw(st.sampled_from((0, 1, 2))), D: draw(st.sampled_from((0, 1, 2, 4)))}
    low = {role: draw(st.integers(1, 2)) for role in ENGINE_ROLES}
    roles = {
        role: RoleScale(draw(st.integers(1, 4)), low[role], low[role] + draw(st.integers(0, 8)), gpus[role])
        for role in ENGINE_ROLES
    }
    if draw(st.sampled_from((False, False, True))):
        roles[P] = RoleScale.fixed(low[P], gpus[P])
    scaled = all(scale.autoscaled for scale in roles.values())
    ratio = draw(st.none() | st.just(Ratio(Fraction(1, 2), Fraction(2)))) if scaled else None
    budget = sum(gpus[role] * low[role] for role in gpus) + draw(st.integers(0, 24))
    return AllocationWorld(ScaleSpec(roles, ratio, budget, draw(st.sampled_from((False, False, True)))), nodes)


_acts = st.tuples(st.sampled_from(ACTS), st.sampled_from(ENGINE_ROLES), st.integers(0, 12))


@settings(max_examples=150)
@given(_worlds(), st.lists(_acts, min_size=40, max_size=80))
def test_the_budget_holds(world: AllocationWorld, acts: list[Act]) -> None:
    world.reconcile()
    for what in (("controllers", P, 0), ("switch", P, 0), ("reconcile", P, 0), *acts):
        act(world, *what)
        assert world.spec.budget is not None
        assert world.used() <= world.spec.budget, what


@settings(max_examples=60)
@given(_worlds(), st.lists(_acts, max_size=40))
def test_the_world_comes_to_rest_and_serves(world: AllocationWorld, acts: list[Act]) -> None:
    world.settle()
    assert world.switch()
    for what in acts:
        act(world, *what)
    world.look()
    world.asleep = False
    world.prune()
    world.settle()
    if not (blocked := world.decide().blocked):
        assert world.switch()
        world.prune()
        world.settle()
        for role, scale in world.spec.roles.items():
            assert scale.minimum <= world.desired[role, 0, world.target] <= scale.maximum
    else:
        assert "Raise it to" in blocked
        assert world.serving != world.target
    assert all(world.desired[role, 0, world.serving] > 0 for role in ENGINE_ROLES)
    assert len({world.desired[P, rank, world.serving] for rank in range(world.nodes)}) == 1
    before = dict(world.desired)
    world.reconcile()
    assert world.desired == before


@settings(max_examples=60)
@given(_worlds(), st.lists(_acts, max_size=40), st.integers(0, 24))
def test_a_changed_budget_is_kept_in_the_end(world: AllocationWorld, acts: list[Act], budget: int) -> None:
    world.settle()
    world.switch()
    for what in acts:
        act(world, *what)
    world.asleep = False
    world.budget(budget)
    for _ in range(3):  # a revision that is created meanwhile takes over
        world.prune()
        world.settle()
        world.switch()
    world.prune()
    world.settle()
    assert world.spec.budget is not None
    assert world.used() <= world.spec.budget or world.serving != world.target


SMALL = ScaleSpec({P: RoleScale(1, 1, 4), D: RoleScale(1, 1, 4)}, None, 4)


@settings(max_examples=60)
@given(_worlds(), st.lists(_acts, min_size=10, max_size=60))
@example(AllocationWorld(SMALL), [("recommend", P, 4), ("reconcile", P, 0), ("recommend", D, 4), ("reconcile", D, 0)])
def test_no_serving_pod_goes_for_the_other_role(world: AllocationWorld, acts: list[Act]) -> None:
    """While spec and budget stay, a count falls only to what range and ratio make of the recommendation."""
    world.settle()
    world.switch()
    for what in acts:
        before = dict(world.desired)
        act(world, *what)
        if what[0] in {"reconcile", "dies"} and not world.asleep:
            _check_kept(world, before)


def _check_kept(world: AllocationWorld, before: Mapping[Place, int]) -> None:
    lowest = AllocationWorld(
        ScaleSpec(world.spec.roles, world.spec.ratio, None, world.spec.recreates),
        world.nodes,
        world.target,
        world.serving,
        recommended=world.recommended,
        desired=dict(before),
    ).decide()
    for (role, rank, name), count in before.items():
        now = world.desired[role, rank, name]
        assert now >= min(count, lowest.replicas[role].get(name, count))
