"""GPUs of a resource's pods, by role and revision.

Tests: tests/planning/scaling/test_allocation.py
"""

from collections import defaultdict
from collections.abc import Iterable

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import PodSummary, WorkloadState

_Place = tuple[Role | None, int, str]
"""Role, node rank and revision: those of one workload."""


class ScaledFleet:
    """The workloads and pods of P and D, in all revisions.

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
        """Whether a workload exists."""
        return bool(self._select(role, revision))

    def instances(self, role: Role, revision: str) -> int:
        """Desired instances; the highest count while those of an instance's nodes differ."""
        return max((workload.desired for workload in self._select(role, revision)), default=0)

    def gpus(self, role: Role, revision: str) -> int:
        """GPUs of one instance, over all its nodes."""
        return sum(workload.gpus for workload in self._select(role, revision))

    @property
    def uncounted_gpus(self) -> int:
        """GPUs of pods beyond the desired counts: terminating pods, and pods that scale-down will remove.

        A terminating pod counts in addition to its replacement, because Deployments do not wait for its end.
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

    def _select(self, role: Role, revision: str) -> list[WorkloadState]:
        return [workload for workload in self._workloads if (workload.role, workload.revision) == (role, revision)]
