"""An old revision stays exactly as long as requests may reach it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import ENGINE_ROLES, Role
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


def test_the_old_revision_stays_until_the_router_is_rolled_out() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=[router_pod(OLD)])
    assert not plan.may_be_deleted(OLD)
    assert plan.serving == OLD
    assert not plan.complete


def test_the_old_revision_is_deleted_when_no_router_pod_uses_it() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW), pods=[router_pod(NEW)])
    assert plan.may_be_deleted(OLD)
    assert plan.serving == NEW
    assert plan.complete


def test_the_old_revision_stays_while_an_old_router_pod_drains() -> None:
    pods = [router_pod(NEW), router_pod(OLD, terminating=True)]
    assert not plan_rollout(target=NEW, serving=OLD, router=router(NEW), pods=pods).may_be_deleted(OLD)


def test_a_router_pod_that_has_ended_holds_nothing_back() -> None:
    pods = [router_pod(NEW), router_pod(OLD, phase="Failed")]
    assert plan_rollout(target=NEW, serving=OLD, router=router(NEW), pods=pods).may_be_deleted(OLD)


def test_a_rollout_completed_unobserved_defines_the_serving_revision() -> None:
    """After a pause of the operator: the status still has OLD, and the spec has NEW."""
    pods = [router_pod("between", ready=True), router_pod(NEW, ready=True)]
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=pods)
    assert (plan.serving, plan.complete) == ("between", False)
    assert plan.may_be_deleted(OLD)
    assert not plan.may_be_deleted("between")
    drains = [*pods, router_pod(OLD, terminating=True)]
    assert plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=drains).serving == OLD


def test_a_bad_revision_in_between_is_freed_while_the_first_keeps_serving() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=[router_pod(OLD)])
    assert plan.may_be_deleted(BAD)
    assert not plan.may_be_deleted(OLD)


def test_going_back_makes_the_first_revision_the_target_again() -> None:
    plan = plan_rollout(target=OLD, serving=OLD, router=router(OLD), pods=[router_pod(OLD)])
    assert plan.may_be_deleted(NEW)
    assert not plan.may_be_deleted(OLD)


def test_nothing_goes_when_it_is_unknown_what_the_router_does() -> None:
    for unknown in (None, router(OLD, complete=False)):
        assert plan_rollout(target=NEW, serving="", router=unknown, pods=[]).keep is None


def test_a_first_revision_that_never_got_ready_is_freed_by_its_correction() -> None:
    plan = plan_rollout(target=NEW, serving="", router=router(NEW, complete=False), pods=[router_pod(BAD)])
    assert plan.may_be_deleted(BAD)
    assert not plan.may_be_deleted(NEW)


def test_all_first_revisions_that_answer_stay() -> None:
    pods = [router_pod(OLD, ready=True), router_pod(BAD, ready=True)]
    plan = plan_rollout(target=NEW, serving="", router=router(NEW, complete=False), pods=pods)
    assert plan.keep == frozenset({OLD, BAD, NEW})


def test_the_target_stays_before_its_router_pods_are_seen() -> None:
    assert plan_rollout(target=NEW, serving=OLD, router=router(NEW), pods=[]).keep == frozenset({NEW})


def test_a_first_revision_that_answers_in_part_stays() -> None:
    for pod in (router_pod(OLD, ready=True), router_pod(OLD, terminating=True)):
        assert not plan_rollout(target=NEW, serving="", router=router(NEW, complete=False), pods=[pod]).may_be_deleted(
            OLD
        )


def test_a_status_that_describes_an_older_router_spec_completes_nothing() -> None:
    stale = WorkloadState("x-router", Role.ROUTER, NEW, 1, 1, 1, 1, 1, observed=False)
    assert not plan_rollout(target=NEW, serving=OLD, router=stale, pods=[]).complete


def test_a_router_without_pods_holds_nothing_back() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, desired=0), pods=[])
    assert plan.may_be_deleted(OLD)
    assert not plan.complete


def test_a_router_without_pods_frees_the_serving_revision() -> None:
    leaving = [router_pod("a", terminating=True), router_pod("b", terminating=True)]
    for pods, goes in ((leaving, False), ([], True)):
        assert (
            plan_rollout(target=NEW, serving=OLD, router=router(NEW, desired=0), pods=pods).may_be_deleted(OLD) == goes
        )


def test_recreate_deletes_the_old_revision_at_once() -> None:
    pods = [router_pod(OLD)]
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=pods, recreate=True)
    assert plan.may_be_deleted(OLD)


def test_the_serving_revision_stays_while_its_router_pod_is_replaced() -> None:
    """The only old router pod was evicted in mid-roll-out; its ReplicaSet is about to make another."""
    for pods in ([], [router_pod(OLD, phase="Failed")], [router_pod(NEW)]):
        plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=pods)
        assert not plan.may_be_deleted(OLD)
        assert plan.serving == OLD


def test_another_revision_that_answers_does_not_replace_the_serving_one() -> None:
    pods = [router_pod(OLD), router_pod("between", ready=True), router_pod(NEW)]
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=pods)
    assert plan.serving == OLD
    assert not any(plan.may_be_deleted(revision) for revision in (OLD, "between", NEW))


def test_of_two_others_that_answer_neither_is_taken_for_the_serving_one() -> None:
    pods = [router_pod("first", ready=True), router_pod("second", ready=True)]
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=pods)
    assert plan.serving == OLD
    assert not plan.may_be_deleted(OLD)


def test_a_router_pod_that_stops_does_not_make_its_revision_serve() -> None:
    """It may never have answered; the serving revision's own router pod has just been evicted."""
    pods = [router_pod(OLD, phase="Failed"), router_pod("between", terminating=True), router_pod(NEW)]
    plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, complete=False), pods=pods)
    assert plan.serving == OLD
    assert not plan.may_be_deleted(OLD)


def test_a_revision_that_answers_serves_although_no_roll_out_ended() -> None:
    """It is unknown because the operator was down. Its only router pod may be deleted next."""
    lost = router(NEW, complete=False)
    plan = plan_rollout(target=NEW, serving="", router=lost, pods=[router_pod(OLD, ready=True), router_pod(NEW)])
    assert plan.serving == OLD
    assert not plan_rollout(target=NEW, serving=plan.serving, router=lost, pods=[router_pod(NEW)]).may_be_deleted(OLD)


def test_an_old_template_completes_nothing() -> None:
    """The write of the new template was refused, or is still under way."""
    plan = plan_rollout(target=NEW, serving=OLD, router=router(OLD), pods=[])
    assert (plan.serving, plan.complete) == (OLD, False)
    assert not plan.may_be_deleted(OLD)


def test_nothing_goes_before_the_new_template_is_seen() -> None:
    """Until the Deployment controller observes it, the old ReplicaSet goes on making pods, and they get requests."""
    unseen = replace(router(NEW), observed=False)
    assert plan_rollout(target=NEW, serving="", router=unseen, pods=[]).keep is None


def test_a_router_that_is_being_scaled_to_zero_still_keeps_what_serves() -> None:
    for going in (
        replace(router(NEW, desired=0), observed=False),
        replace(router(NEW, desired=0), replicas=1),
    ):
        assert not plan_rollout(target=NEW, serving=OLD, router=going, pods=[]).may_be_deleted(OLD)
    for last in (router_pod(OLD), router_pod(NEW)):
        plan = plan_rollout(target=NEW, serving=OLD, router=router(NEW, desired=0), pods=[last])
        assert not plan.may_be_deleted(OLD)


def test_a_router_with_pods_that_are_not_seen_yet_keeps_what_serves() -> None:
    plan = plan_rollout(target=NEW, serving=OLD, router=router(BAD, desired=1), pods=[])
    assert not plan.may_be_deleted(OLD)


def test_pods_of_p_and_d_keep_nothing() -> None:
    """Requests reach them through router pods alone."""
    engines = [
        PodSummary(name=f"{role}-{BAD}", role=role, revision=BAD, phase="Running", ready=True) for role in ENGINE_ROLES
    ]
    assert plan_rollout(target=NEW, serving="", router=router(NEW, complete=False), pods=engines).may_be_deleted(BAD)
    assert plan_rollout(target=NEW, serving=OLD, router=router(NEW), pods=engines).may_be_deleted(BAD)


def test_a_drained_router_pod_that_has_ended_does_not_answer() -> None:
    pods = [router_pod(BAD, terminating=True, phase="Succeeded")]
    assert plan_rollout(target=NEW, serving="", router=router(NEW, complete=False), pods=pods).may_be_deleted(BAD)


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
    assert not plan.may_be_deleted(target)
    for pod in pods:
        if pod.role is Role.ROUTER and not pod.gone and (pod.ready or pod.terminating):
            assert not plan.may_be_deleted(pod.revision)


def test_only_router_pods_that_still_run_answer() -> None:
    """A pod whose node is gone may end as ready as it was; P and D pods stop on their own account."""
    for pod in (
        router_pod(BAD, phase="Failed", ready=True),
        PodSummary(name="p", role=Role.PARAMETER, revision=BAD, phase="Running", terminating=True),
    ):
        plan = plan_rollout(target=NEW, serving="", router=router(NEW, complete=False), pods=[pod])
        assert plan.serving == ""
        assert plan.may_be_deleted(BAD)
