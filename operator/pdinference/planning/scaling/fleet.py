"""The GPUs that the pods of a resource hold, by role and revision."""

from collections import defaultdict
from collections.abc import Iterable

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import PodSummary, WorkloadState

_Place = tuple[Role | None, int, str]
"""Role, node rank and revision: those of one workload."""


class Fleet:
    """What runs P and D, in all revisions.

    Args:
        workloads: Those that are not being deleted.
        pods: All pods.
    """

    def __init__(self, workloads: Iterable[WorkloadState], pods: Iterable[PodSummary]) -> None:
        self._workloads = [workload for workload in workloads if workload.role in ENGINE_ROLES]
        self._pods = [pod for pod in pods if pod.role in ENGINE_ROLES and not pod.gone]

    @property
    def revisions(self) -> tuple[str, ...]:
        """Revisions that have a workload."""
        return tuple(sorted({workload.revision for workload in self._workloads}))

    def has(self, role: Role, revision: str) -> bool:
        """Whether there is a workload."""
        return bool(self._of(role, revision))

    def instances(self, role: Role, revision: str) -> int:
        """Instances that there are or will be; the nodes of an instance may differ for a moment."""
        return max((workload.desired for workload in self._of(role, revision)), default=0)

    def gpus(self, role: Role, revision: str) -> int:
        """GPUs of one instance, over all its nodes."""
        return sum(workload.gpus for workload in self._of(role, revision))

    @property
    def uncounted_gpus(self) -> int:
        """GPUs of pods that no workload counts any more: of those that end, and those that are about to.

        A pod that ends is counted beside the one that takes its place: Deployments do not wait for its end.
        """
        wanted: dict[_Place, int] = {
            (w.role, w.node_rank, w.revision): self.instances(w.role, w.revision) for w in self._workloads
        }
        staying: defaultdict[_Place, int] = defaultdict(int)
        gpus = 0
        for pod in self._pods:
            place = (pod.role, pod.node_rank, pod.revision)
            staying[place] += not pod.terminating
            if pod.terminating or staying[place] > wanted.get(place, 0):
                gpus += pod.gpus
        return gpus

    def _of(self, role: Role, revision: str) -> list[WorkloadState]:
        return [workload for workload in self._workloads if (workload.role, workload.revision) == (role, revision)]
