"""A revision that may get or hold requests is never deleted, whatever fails in a roll-out."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.rollout import plan_rollout
from tests.planning.rollout_world import RolloutWorld

REVISIONS = st.sampled_from(["a", "b", "c"])
PODS = st.integers(0, 5)


class Rollouts(RuleBasedStateMachine):
    """Edits, controllers and faults in any order; the operator looks after each, since each is an event."""

    def __init__(self) -> None:
        super().__init__()
        self.world = RolloutWorld()
        self.target = ""
        self.desired = 2
        self.hint = ""
        self.refused = False

    @initialize(desired=st.integers(1, 2), begun=st.booleans(), away=st.booleans())
    def _a_first_revision_serves_and_maybe_the_next_begins(self, desired: int, begun: bool, away: bool) -> None:
        """Its status may be lost: no operator ran when the first roll-out ended, and then the spec was edited."""
        self.target, self.desired = "a", desired
        self._settle()
        assert self.world.serving == self.hint == "a"
        if begun:
            self.hint = "" if away else "a"
            self.target = "b"
            self._look()
            self.world.deployment_controller()
            self.world.replica_sets()
            self._look()

    @rule(revision=REVISIONS)
    def _the_user_edits(self, revision: str) -> None:
        self.target = revision
        self._look()

    @rule(desired=st.integers(0, 2))
    def _the_user_scales_the_router(self, desired: int) -> None:
        self.desired = desired
        self._look()

    @rule()
    def _the_deployment_controller_looks(self) -> None:
        self.world.deployment_controller()
        self._look()

    @rule()
    def _replica_sets_make_and_stop_pods(self) -> None:
        self.world.replica_sets()
        self._look()

    @rule()
    def _kubelets_probe(self) -> None:
        self.world.kubelets()
        self._look()

    @rule(revision=REVISIONS)
    def _p_and_d_start(self, revision: str) -> None:
        self.world.engines_start(revision)
        self._look()

    @rule(revision=REVISIONS, role=st.sampled_from(ENGINE_ROLES))
    def _p_or_d_fails(self, revision: str, role: Role) -> None:
        if revision in self.world.engines:
            self.world.engines[revision][role] = False
        self._look()

    @rule()
    def _router_pods_have_drained(self) -> None:
        self.world.drained()
        self._look()

    @rule(index=PODS)
    def _a_router_pod_is_told_to_go(self, index: int) -> None:
        for pod in self.world.pods[index : index + 1]:
            pod.terminating = True
        self._look()

    @rule(index=PODS, trace=st.booleans())
    def _a_router_pod_is_evicted(self, index: int, trace: bool) -> None:
        """At once, as by a kubelet that lacks disk, or with a node that is gone."""
        for pod in self.world.pods[index : index + 1]:
            pod.failed = True
            pod.ready = False
            if not trace:
                self.world.pods.remove(pod)
        self._look()

    @rule(drains=st.booleans())
    def _all_goes_well_for_a_while(self, drains: bool) -> None:
        self._settle(drains=drains)

    @rule()
    def _writes_of_the_router_are_refused(self) -> None:
        self.refused = not self.refused
        self._look()

    def _settle(self, *, drains: bool = True) -> None:
        for _ in range(4):
            self._look()
            self.world.deployment_controller()
            self.world.replica_sets()
            self.world.engines_start(self.target)
            self.world.kubelets()
            if drains:
                self.world.drained()
        self._look()

    def _look(self) -> None:
        """A reconcile: apply, decide, delete, write the status."""
        world = self.world
        if not self.refused:
            world.apply(self.target, self.desired)
        world.create(self.target)
        plan = plan_rollout(target=self.target, serving=self.hint, router=world.router(), pods=world.summaries())
        for revision in [revision for revision in world.engines if plan.may_be_deleted(revision)]:
            self._may_be_deleted(revision, kept=world.engines.keys() - {revision})
            del world.engines[revision]
        self.hint = plan.serving

    def _may_be_deleted(self, revision: str, *, kept: set[str]) -> None:
        world = self.world
        assert revision != self.target
        assert not [pod for pod in world.pods if pod.revision == revision and pod.holds_requests]
        if revision != world.serving:
            return
        asleep = world.desired == world.wanted.total() == 0 and not any(pod.active for pod in world.pods)
        others = {pod.revision for pod in world.pods if pod.ready and pod.revision in kept}
        routed = any(pod.revision == revision and not pod.failed for pod in world.pods)
        assert asleep or (others and not routed), "its ReplicaSet makes router pods again, and requests go to them"
        world.serving = "" if asleep else min(others)

    @invariant()
    def _what_serves_nobody_goes(self) -> None:
        world = self.world
        if world.complete and world.desired > 0 and world.template == self.target:
            routed = {pod.revision for pod in world.pods if not pod.failed}
            assert world.engines.keys() <= {self.target, *routed}


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(max_examples=300, stateful_step_count=25, deadline=None)
