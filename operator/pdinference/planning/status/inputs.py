"""The inputs of a status.

Tests: tests/planning/test_status.py, tests/planning/test_host_local.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.api.v1alpha1.status import RepairStatus
from pdinference.planning.desired_state import DesiredState
from pdinference.planning.model_report import ModelView
from pdinference.planning.observations import Observations
from pdinference.planning.observed import AutoscalerState, Failure, PodSummary, RouteParent, WorkloadState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.scaling.limited import LimitReason


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """Everything from which the status of a PDInference is computed.

    Attributes:
        paused: Whether edits of the spec are not rolled out.
        withheld: Whether there is such an edit; `desired` then follows from the spec before it.
        invalid: The error of the stored spec; `desired` then follows from the last valid spec. Empty if it is valid.
        url: Base URL for clients inside the cluster.
        reachable: Whether the Service of this URL exists and is that of the resource.
        desired: The desired state.
        observations: What is measured of the resource.
        rollout: Which revision serves.
        allocation: The replica count of each role, and what limits it.
        repaired: Restarts of pods whose KV transfer was broken, in the desired revision.
        asleep: Whether P and D have no pods because no requests arrived.
        failures: Children that could not be applied or pruned in this reconcile, permanent failures first.
        workloads: The live workload of each role in the target revision; absent while it does not exist.
        pods: All live pods of the resource, of any revision.
        aggregated: Revisions without P (`spec.mode: Aggregated`).
        autoscalers: The HPA of each autoscaled role; None where there is none yet.
        model: The Job that downloads or inspects the model; None without one.
        route: The parents of the HTTPRoute; empty while it does not exist, and None without one.
    """

    namespace: str
    name: str
    generation: int
    url: str
    desired: DesiredState
    rollout: RolloutPlan
    workloads: Mapping[Role, WorkloadState]
    pods: tuple[PodSummary, ...]
    reachable: bool = True
    paused: bool = False
    withheld: bool = False
    invalid: str = ""
    observations: Observations = field(default_factory=Observations)
    allocation: Allocation = field(default_factory=lambda: Allocation({}))
    repaired: RepairStatus | None = None
    asleep: bool = False
    failures: tuple[Failure, ...] = ()
    aggregated: frozenset[str] = frozenset()
    autoscalers: Mapping[Role, AutoscalerState | None] = field(default_factory=dict)
    model: ModelView | None = None
    route: tuple[RouteParent, ...] | None = None

    def desired_replicas(self, role: Role) -> int:
        """The desired count of a role, from spec or allocation; at least the minimum while the role waits for GPUs."""
        workload = self.workloads.get(role)
        if role not in self.autoscalers or workload is None:
            return self.desired.replicas.get(role, 0)
        limit = self.allocation.limited.get(role)
        waits = limit is not None and limit.reason == LimitReason.GPU_BUDGET
        return max(workload.desired, self.desired.scale.roles[role].minimum) if waits else workload.desired

    @property
    def shares_pods(self) -> bool:
        """Whether P runs in the pods of D."""
        path = self.desired.transfer_path
        return path is not None and path.host_local

    @property
    def desired_shared_parameters(self) -> int:
        """Number of P instances that there should be in the pods of D."""
        path = self.desired.transfer_path
        return 0 if path is None else self.desired_replicas(Role.DECODE) * path.parameter_instances

    def current_pods(self, role: Role) -> list[PodSummary]:
        """The role's pods of the target revision; each engine of those that have several."""
        pods = (pod for pod in self.pods if pod.revision == self.desired.revision and not pod.gone)
        return [one for pod in pods for one in pod.by_engine if one.role is role]

    def ready_leaders(self, role: Role, revision: str) -> int:
        """Number of ready pods of a role in a revision, without worker nodes."""
        found = (pod for pod in self.pods if pod.role is role and pod.revision == revision and pod.node_rank == 0)
        return sum(pod.ready for pod in found)

    @property
    def stopped(self) -> bool:
        """Whether the spec sets P or D to zero replicas, so that no request can be answered."""
        return any(self.desired.replicas.get(role) == 0 for role in ENGINE_ROLES)

    @property
    def engines_starting(self) -> bool:
        """Whether P and D of a resource that scales to zero have no ready pods in a revision that gets requests."""
        return self.desired.sleeps_after is not None and not self._routed_to(*ENGINE_ROLES)

    @property
    def answers(self) -> bool:
        """Whether a router pod is ready, and has ready pods to send requests to; otherwise requests wait in it."""
        router = self.workloads.get(Role.ROUTER)
        needed = (Role.DECODE,) if self.desired.decode_computes_prompts else ENGINE_ROLES
        return router is not None and router.ready > 0 and self._routed_to(*needed)

    @property
    def without_parameter(self) -> bool:
        """Whether no revision that gets requests has the P pods that it needs."""
        return not self._routed_to(Role.PARAMETER)

    @property
    def routers_change(self) -> bool:
        """Whether a rolling update of the router is under way."""
        router = self.workloads.get(Role.ROUTER)
        return router is None or not router.complete

    def _routed_to(self, *roles: Role) -> bool:
        """Whether a revision that gets requests has a ready pod of each of these roles, as far as its mode has them."""
        pods = [one for pod in self.pods for one in pod.by_engine if not one.terminating and one.node_rank == 0]
        live = [pod for pod in pods if pod.ready]
        routed = {pod.revision for pod in live if pod.role is Role.ROUTER} or {self.rollout.serving}
        return any(
            {pod.role for pod in live if pod.revision == revision}.issuperset(self._in_mode(revision, roles))
            for revision in routed
        )

    def _in_mode(self, revision: str, roles: Iterable[Role]) -> set[Role]:
        shares = any(pod.revision == revision and pod.engines for pod in self.pods)
        return set(roles) - ({Role.PARAMETER} if revision in self.aggregated and not shares else set())
