"""All that is known of a PDInference when its status is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.conditions import ConditionResult
from pdinference.planning.memory import NO_VERDICT, MemoryVerdict
from pdinference.planning.model_report import ModelView
from pdinference.planning.observed import AutoscalerState, Failure, PodSummary, WorkloadState
from pdinference.planning.rollout import RolloutPlan
from pdinference.planning.scaling.allocation import Allocation
from pdinference.planning.scaling.condition import MeasuredLoad
from pdinference.planning.scaling.limited import LimitReason


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """All that the status is made of.

    Attributes:
        workloads: The live workload of each role that serves the target revision; absent while it does not exist.
        pods: All live pods of the resource, of any revision.
        failures: Children that could not be applied or pruned in this reconcile.
        memory: Whether the model fits its devices.
        pinned: Whether P is pinned to products; None where P has no accelerator.
        model: The Job that downloads or inspects the model; None when none is wanted.
        verifies_model: Whether P and D look at their model before vLLM starts.
        autoscalers: The HPA of each autoscaled role; None where there is none yet.
        measured: What is known of the load that they go by.
        minimums: The least pods that each autoscaled role is to have.
        allocation: The replica count of each role, and what limits it.
        queues_requests: Whether requests wait in router pods while P and D have none, so that a ready router says little.
        asleep: Whether P and D have no pods because nobody asks.
        invalid: What is wrong with the stored spec; all else is by the last valid one then. Empty for a valid one.
        activity_known: Whether router pods tell how many requests there are.
        progress_deadline: How long a roll-out may make no progress; None for ever.
    """

    namespace: str
    name: str
    generation: int
    port: int
    target: str
    desired: Mapping[Role, int]
    rollout: RolloutPlan
    workloads: Mapping[Role, WorkloadState]
    pods: tuple[PodSummary, ...]
    failures: tuple[Failure, ...] = ()
    memory: MemoryVerdict = NO_VERDICT
    pinned: ConditionResult | None = None
    model: ModelView | None = None
    verifies_model: bool = False
    autoscalers: Mapping[Role, AutoscalerState | None] = field(default_factory=dict)
    measured: MeasuredLoad = field(default_factory=MeasuredLoad)
    minimums: Mapping[Role, int] = field(default_factory=dict)
    allocation: Allocation = field(default_factory=lambda: Allocation({}))
    queues_requests: bool = False
    asleep: bool = False
    activity_known: bool = True
    invalid: str = ""
    progress_deadline: timedelta | None = None

    def desired_replicas(self, role: Role) -> int:
        """How many pods the role is to have: as the spec says or as allocated; while it waits for GPUs, the minimum."""
        workload = self.workloads.get(role)
        if role not in self.autoscalers or workload is None:
            return self.desired[role]
        limit = self.allocation.limited.get(role)
        waits = limit is not None and limit.reason == LimitReason.GPU_BUDGET
        return max(workload.desired, self.minimums.get(role, 0)) if waits else workload.desired

    def current_pods(self, role: Role) -> list[PodSummary]:
        """The role's pods of the target revision."""
        return [pod for pod in self.pods if pod.role is role and pod.revision == self.target and not pod.gone]

    @property
    def stopped(self) -> bool:
        """Whether the spec wants no pods of P or of D, so that no request is answered."""
        return any(self.desired.get(role) == 0 for role in ENGINE_ROLES)

    @property
    def engines_starting(self) -> bool:
        """Whether requests wait because no revision that they go to has a P and a D pod that are ready."""
        return self.queues_requests and not self._has_ready_revision

    @property
    def answers(self) -> bool:
        """Whether a router pod is ready, and not just because requests may wait in it.

        So may those in router pods of an earlier spec, as long as they are there.
        """
        router = self.workloads.get(Role.ROUTER)
        return (
            router is not None
            and router.ready > 0
            and (self._has_ready_revision or not (self.queues_requests or self.routers_change))
        )

    @property
    def routers_change(self) -> bool:
        """Whether router pods come or go."""
        router = self.workloads.get(Role.ROUTER)
        return router is None or not router.complete

    @property
    def _has_ready_revision(self) -> bool:
        live = [pod for pod in self.pods if pod.ready and not pod.terminating and pod.node_rank == 0]
        routed = {pod.revision for pod in live if pod.role is Role.ROUTER} or {self.rollout.serving}
        ready_roles = ({pod.role for pod in live if pod.revision == revision} for revision in routed)
        return any(roles >= set(ENGINE_ROLES) for roles in ready_roles)
