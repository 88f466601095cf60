"""The operator in the simulation: its own function decides the replica counts, from the recommended ones."""

from collections.abc import Callable, Mapping

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.fleet import Fleet as Pods
from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import PodSummary, WorkloadState
from pdinference.planning.scaling.allocation import allocate
from pdinference.planning.scaling.fleet import Fleet
from pdinference.planning.scaling.growth import fitted
from pdinference.planning.scaling.scale_spec import RoleScale, ScaleSpec

_REVISION = "r"
SPEC = ScaleSpec(dict.fromkeys(ENGINE_ROLES, RoleScale(const.MIN_PODS, const.MIN_PODS, const.MAX_PODS)))
"""No ratio and no budget."""


class Operator:
    """Reads the simulated pods, decides, and scales them.

    Args:
        spec: What the resource says.
        pods: The simulated pods.
        scaled: Called with a role and by how many its count changes.

    Attributes:
        recommended: `spec.replicas` of the scale target of each role.
    """

    def __init__(self, spec: ScaleSpec, pods: Pods, scaled: Callable[[Role, int], None]) -> None:
        self._spec, self._pods, self._scaled = spec, pods, scaled
        self.recommended = {role: self.live(role) for role in ENGINE_ROLES}

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._pods.env.now

    def live(self, role: Role) -> int:
        """`status.replicas` of the scale target of a role."""
        return len(self._pods.pods(role))

    def reconcile(self) -> None:
        """Give each role the pods that it may have now."""
        allocation = allocate(self._spec, self._fleet(), self.recommended, target=_REVISION, serving=_REVISION)
        for role in ENGINE_ROLES:
            before, count = self.live(role), allocation.replicas[role][_REVISION]
            if count != before:
                self._scaled(role, count - before)
                self._pods.scale(role, count)

    def _fleet(self) -> Fleet:
        workloads = [
            WorkloadState(role, role, _REVISION, self.live(role), gpus=self._spec.roles[role].gpus)
            for role in ENGINE_ROLES
        ]
        pods = [
            PodSummary("p", role, _REVISION, terminating=pod.draining, gpus=self._spec.roles[role].gpus)
            for role in ENGINE_ROLES
            for pod in self._pods.every(role)
            if pod.gone_at is None
        ]
        return Fleet(workloads, pods)


def fitting(spec: ScaleSpec, counts: Mapping[Role, int]) -> Mapping[Role, int]:
    """These counts, less what exceeds the budget."""
    minimums = {role: scale.minimum for role, scale in spec.roles.items()}
    gpus = {role: scale.gpus for role, scale in spec.roles.items()}
    return counts if spec.budget is None else fitted(counts, minimums, gpus, spec.budget)
