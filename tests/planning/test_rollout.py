"""Old P/D pairs stay as long as requests may reach them, and not longer."""

from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import Role
from pdinference.planning.observed import PodSummary, WorkloadState
from pdinference.planning.rollout import plan_rollout

OLD, NEW, BAD = "old", "new", "bad"


def router(revision: str, *, desired: int = 1, complete: bool = True) -> WorkloadState:
    done = desired if complete else 0
    return WorkloadState(
        name="x-router",
        role=Role.ROUTER,
        revision=revision,
        desired=desired,
        replicas=desired,
        updated=done,
        ready=desired,
        available=done,
        observed=True,
    )


def router_pod(revision: str, **more: object) -> PodSummary:
    return PodSummary(name=f"router-{revision}", role=Role.ROUTER, revision=revision, **more)  # type: ignore[arg-type]


def test_the_old_pair_stays_until_the_router_is_rolled_out() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=[router_pod(OLD)])
    assert not plan.may_go(OLD)
    assert plan.serving == OLD
    assert not plan.complete


def test_the_old_pair_goes_when_every_router_pod_talks_to_the_new_one() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW), pods=[router_pod(NEW)])
    assert plan.may_go(OLD)
    assert plan.serving == NEW
    assert plan.complete


def test_the_old_pair_stays_while_an_old_router_pod_drains() -> None:
    pods = [router_pod(NEW), router_pod(OLD, terminating=True)]
    assert not plan_rollout(target=NEW, serving=OLD, router=router(NEW), pods=pods).may_go(OLD)


def test_a_router_pod_that_has_ended_holds_nothing_back() -> None:
    pods = [router_pod(NEW), router_pod(OLD, phase="Failed")]
    assert plan_rollout(target=NEW, serving=OLD, router=router(NEW), pods=pods).may_go(OLD)


def test_a_roll_out_that_ended_unseen_tells_who_serves_although_the_next_one_is_due() -> None:
    """As when the operator was away: the status still says OLD, and the spec asks for NEW already."""
    pods = [router_pod("between", ready=True), router_pod(NEW, ready=True)]
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=pods)
    assert (plan.serving, plan.complete) == ("between", False)
    assert plan.may_go(OLD)
    assert not plan.may_go("between")
    drains = [*pods, router_pod(OLD, terminating=True)]
    assert plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=drains).serving == OLD


def test_a_bad_revision_in_between_is_freed_while_the_first_keeps_serving() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=[router_pod(OLD)])
    assert plan.may_go(BAD)
    assert not plan.may_go(OLD)


def test_going_back_makes_the_first_revision_the_target_again() -> None:
    plan = plan_rollout(target=OLD, serving=OLD, router=router(OLD), pods=[router_pod(OLD)])
    assert plan.may_go(NEW)
    assert not plan.may_go(OLD)


def test_nothing_goes_when_it_is_unknown_what_the_router_does() -> None:
    for unknown in (None, router(OLD, complete=False)):
        assert plan_rollout(target=NEW, serving="", router=unknown, pods=[]).keep is None


def test_a_first_revision_that_never_got_ready_is_freed_by_its_correction() -> None:
    plan = plan_rollout(target=NEW, serving="", router=router(NEW, complete=False), pods=[router_pod(BAD)])
    assert plan.may_go(BAD)


def test_a_first_revision_that_answers_in_part_stays() -> None:
    for pod in (router_pod(OLD, ready=True), router_pod(OLD, terminating=True)):
        assert not plan_rollout(target=NEW, serving="", router=router(NEW, complete=False), pods=[pod]).may_go(OLD)


def test_a_status_that_describes_an_older_router_spec_completes_nothing() -> None:
    stale = WorkloadState("x-router", Role.ROUTER, NEW, 1, 1, 1, 1, 1, observed=False)
    assert not plan_rollout(target=NEW, serving=OLD, router=stale, pods=[]).complete


def test_a_router_without_pods_holds_nothing_back() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, desired=0), pods=[])
    assert plan.may_go(OLD)
    assert not plan.complete


def test_a_router_scaled_to_zero_frees_the_serving_pair_with_its_last_pod() -> None:
    leaving = [router_pod("a", terminating=True), router_pod("b", terminating=True)]
    for pods, goes in ((leaving, False), ([], True)):
        assert plan_rollout(target=NEW, serving=OLD, router=router(NEW, desired=0), pods=pods).may_go(OLD) == goes


def test_recreate_frees_the_old_pair_at_once() -> None:
    pods = [router_pod(OLD)]
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=pods, recreate=True)
    assert plan.may_go(OLD)


revisions = st.sampled_from(["a", "b", "c", "d"])
routers = st.builds(
    WorkloadState,
    name=st.just("x-router"),
    role=st.just(Role.ROUTER),
    revision=revisions,
    desired=st.integers(0, 3),
    replicas=st.integers(0, 3),
    updated=st.integers(0, 3),
    ready=st.integers(0, 3),
    available=st.integers(0, 3),
    observed=st.booleans(),
)
pods = st.builds(
    PodSummary,
    name=st.just("p"),
    role=st.sampled_from(list(Role)),
    revision=revisions,
    phase=st.sampled_from(["Pending", "Running", "Failed"]),
    ready=st.booleans(),
    terminating=st.booleans(),
)


@given(target=revisions, serving=revisions | st.just(""), router=st.none() | routers, pods=st.lists(pods, max_size=6))
def test_whatever_happens_target_and_answering_revisions_stay(
    target: str, serving: str, router: WorkloadState | None, pods: list[PodSummary]
) -> None:
    plan = plan_rollout(target=target, serving=serving, router=router, pods=pods)
    assert not plan.may_go(target)
    for pod in pods:
        if pod.role is Role.ROUTER and not pod.gone and (pod.ready or pod.terminating):
            assert not plan.may_go(pod.revision)


@given(target=revisions, serving=revisions, router=routers, pods=st.lists(pods, max_size=6))
def test_the_serving_revision_goes_only_when_the_router_has_left_it(
    target: str, serving: str, router: WorkloadState, pods: list[PodSummary]
) -> None:
    plan = plan_rollout(target=target, serving=serving, router=router, pods=pods)
    if serving != target and plan.may_go(serving):
        routed = {pod.revision for pod in pods if pod.role is Role.ROUTER and not pod.gone}
        assert plan.complete or router.desired == 0 or serving not in routed
