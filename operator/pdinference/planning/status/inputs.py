"""The inputs of a status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.memory import NO_VERDICT, MemoryVerdict
from pdinference.planning.condition_changes import ConditionResult
from pdinference.planning.model_report import ModelView
from pdinference.planning.objectives import Objectives
from pdinference.planning.observations import Observations
from pdinference.planning.observed import AutoscalerState, Failure, PodSummary, RouteParent, WorkloadState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.scaling.limited import LimitReason
from pdinference.planning.transfer_measurements import ON_CPU, Path


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """Everything from which the status of a PDInference is computed.

    Attributes:
        url: Base URL for clients inside the cluster.
        desired: `replicas` of each role that the mode has.
        workloads: The live workload of each role in the target revision; absent while it does not exist.
        pods: All live pods of the resource, of any revision.
        aggregated: Revisions without P (`spec.mode: Aggregated`).
        failures: Children that could not be applied or pruned in this reconcile.
        memory: Whether the model fits its devices.
        pinned: Whether P is pinned to products; None where P has no accelerator, and without P.
        clients_authenticated: Whether clients outside the cluster need an API key; None where they reach no router.
        model: The Job that downloads or inspects the model; None without one.
        route: The parents of the HTTPRoute; empty while it does not exist, and None without one.
        verifies_model: Whether P and D check their model before vLLM starts.
        autoscalers: The HPA of each autoscaled role; None where there is none yet.
        observations: What is measured of the resource.
        minimums: `minReplicas` of each autoscaled role.
        allocation: The replica count of each role, and what limits it.
        scales_to_zero: Whether P and D may have no pods because no requests arrived.
        decode_computes_prompts: Whether D computes prompts while no P pod is ready (`router.whenNoPrefill: Serve`).
        transfer_path: How the KV cache goes from P to D; None if it does not.
        objectives: The latency objectives; None without any.
        asleep: Whether P and D have no pods because no requests arrived.
        invalid: The error of the stored spec; the other inputs then follow from the last valid spec. Empty if valid.
        paused: Whether edits of the spec are not rolled out.
        withheld: Whether there is such an edit; the other inputs then follow from the spec before it.
        progress_deadline: How long a roll-out may make no progress; None for no limit.
    """

    namespace: str
    name: str
    generation: int
    url: str
    target: str
    desired: Mapping[Role, int]
    rollout: RolloutPlan
    workloads: Mapping[Role, WorkloadState]
    pods: tuple[PodSummary, ...]
    aggregated: frozenset[str] = frozenset()
    failures: tuple[Failure, ...] = ()
    memory: MemoryVerdict = NO_VERDICT
    pinned: ConditionResult | None = None
    clients_authenticated: ConditionResult | None = None
    model: ModelView | None = None
    route: tuple[RouteParent, ...] | None = None
    verifies_model: bool = False
    autoscalers: Mapping[Role, AutoscalerState | None] = field(default_factory=dict)
    observations: Observations = field(default_factory=Observations)
    minimums: Mapping[Role, int] = field(default_factory=dict)
    allocation: Allocation = field(default_factory=lambda: Allocation({}))
    scales_to_zero: bool = False
    decode_computes_prompts: bool = False
    transfer_path: Path | None = ON_CPU
    objectives: Objectives | None = None
    asleep: bool = False
    invalid: str = ""
    paused: bool = False
    withheld: bool = False
    progress_deadline: timedelta | None = None

    def desired_replicas(self, role: Role) -> int:
        """The desired count of a role, from spec or allocation; at least the minimum while the role waits for GPUs."""
        workload = self.workloads.get(role)
        if role not in self.autoscalers or workload is None:
            return self.desired.get(role, 0)
        limit = self.allocation.limited.get(role)
        waits = limit is not None and limit.reason == LimitReason.GPU_BUDGET
        return max(workload.desired, self.minimums.get(role, 0)) if waits else workload.desired

    @property
    def shares_pods(self) -> bool:
        """Whether P runs in the pods of D."""
        return self.transfer_path is not None and self.transfer_path.host_local

    @property
    def desired_shared_parameters(self) -> int:
        """Number of P instances that there should be in the pods of D."""
        path = self.transfer_path
        return 0 if path is None else self.desired_replicas(Role.DECODE) * path.parameter_instances

    def current_pods(self, role: Role) -> list[PodSummary]:
        """The role's pods of the target revision; each engine of those that have several."""
        pods = (pod for pod in self.pods if pod.revision == self.target and not pod.gone)
        return [one for pod in pods for one in pod.by_engine if one.role is role]

    def ready_leaders(self, role: Role, revision: str) -> int:
        """Number of ready pods of a role in a revision, without worker nodes."""
        found = (pod for pod in self.pods if pod.role is role and pod.revision == revision and pod.node_rank == 0)
        return sum(pod.ready for pod in found)

    @property
    def stopped(self) -> bool:
        """Whether the spec sets P or D to zero replicas, so that no request can be answered."""
        return any(self.desired.get(role) == 0 for role in ENGINE_ROLES)

    @property
    def engines_starting(self) -> bool:
        """Whether P and D of a resource that scales to zero have no ready pods in a revision that gets requests."""
        return self.scales_to_zero and not self._routed_to(*ENGINE_ROLES)

    @property
    def answers(self) -> bool:
        """Whether a router pod is ready, and has ready pods to send requests to; otherwise requests wait in it."""
        router = self.workloads.get(Role.ROUTER)
        needed = (Role.DECODE,) if self.decode_computes_prompts else ENGINE_ROLES
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
