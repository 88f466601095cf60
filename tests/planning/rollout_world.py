"""A cluster in which a router rolls out: enough of Kubernetes' controllers to know where requests may go.

It does at its own pace what kubelets, ReplicaSets and the Deployment controller do (maxUnavailable 0, maxSurge 1), each
as a step of its own, so that a status may lag behind the pods. A router pod is ready only while P and D of its revision
are.
"""

from collections import Counter
from dataclasses import dataclass, field

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import PodSummary, WorkloadState

SURGE = 1


@dataclass(eq=False)
class RouterPod:
    """A router pod as it is; `answered` says whether it was ever ready, so that it may hold requests."""

    revision: str
    ready: bool = False
    terminating: bool = False
    failed: bool = False
    answered: bool = False

    @property
    def active(self) -> bool:
        """Whether its ReplicaSet counts it."""
        return not (self.terminating or self.failed)

    @property
    def holds_requests(self) -> bool:
        """Whether requests go to it, or may be under way in it."""
        return not self.failed and (self.ready or (self.terminating and self.answered))


@dataclass
class RolloutWorld:
    """The router Deployment, its ReplicaSets and pods, and the health of P and D of each revision."""

    desired: int = 2
    template: str = ""
    generation: int = 0
    wanted: Counter[str] = field(default_factory=Counter)
    """Pods that each ReplicaSet is to have."""
    pods: list[RouterPod] = field(default_factory=list)
    engines: dict[str, dict[Role, bool]] = field(default_factory=dict)
    """Whether P and D of a revision are ready; of deleted revisions nothing."""
    serving: str = ""
    """The revision that the last complete roll-out was to."""
    _status: WorkloadState | None = None
    _seen_generation: int = 0

    def apply(self, revision: str, desired: int) -> None:
        """The operator writes the router Deployment."""
        if (revision, desired) != (self.template, self.desired):
            self.generation += 1
            self.template, self.desired = revision, desired

    def create(self, revision: str) -> None:
        """The operator creates P and D, unless they are there."""
        self.engines.setdefault(revision, dict.fromkeys(ENGINE_ROLES, False))

    def deployment_controller(self) -> None:
        """One look: it scales ReplicaSets, and writes the status that it computed before."""
        active = [pod for pod in self.pods if pod.active]
        self._status = WorkloadState(
            name="x-router",
            role=Role.ROUTER,
            revision="",
            desired=0,
            replicas=len(active),
            updated=sum(pod.revision == self.template for pod in active),
            ready=sum(pod.ready for pod in active),
            available=sum(pod.ready for pod in active),
        )
        self._seen_generation = self.generation
        if self.desired > 0 and self.complete:
            self.serving = self.template
        self._scale_up()
        self._scale_down()

    @property
    def complete(self) -> bool:
        """Whether the roll-out is complete according to the status."""
        status = self._status
        return (
            status is not None
            and self._seen_generation == self.generation
            and self.desired == status.replicas == status.updated == status.available
        )

    def _scale_up(self) -> None:
        if self.desired == 0 or self.wanted[self.template] > self.desired:
            self.wanted[self.template] = self.desired
        room = self.desired + SURGE - self.wanted.total()
        missing = self.desired - self.wanted[self.template]
        self.wanted[self.template] += max(0, min(room, missing))

    def _scale_down(self) -> None:
        available = Counter(pod.revision for pod in self.pods if pod.active and pod.ready)
        unavailable = self.wanted[self.template] - available[self.template]
        spare = self.wanted.total() - self.desired - max(0, unavailable)
        old = [revision for revision in self.wanted if revision != self.template]
        for revision in old:  # first those that are not available
            gone = max(0, min(spare, self.wanted[revision] - available[revision]))
            self.wanted[revision] -= gone
            spare -= gone
        above = available.total() - self.desired
        for revision in old:
            gone = max(0, min(spare, above, self.wanted[revision]))
            self.wanted[revision] -= gone
            spare, above = spare - gone, above - gone

    def replica_sets(self) -> None:
        """Each makes the pods that it lacks, and stops those that it has too many of, unready ones first."""
        for revision, wanted in self.wanted.items():
            active = sorted((p for p in self.pods if p.active and p.revision == revision), key=lambda p: p.ready)
            self.pods += [RouterPod(revision) for _ in range(wanted - len(active))]
            for pod in active[: max(0, len(active) - wanted)]:
                pod.terminating = True

    def kubelets(self) -> None:
        """Probes find out which router pods are ready."""
        for pod in self.pods:
            pod.ready = pod.active and all(self.engines.get(pod.revision, {"": False}).values())
            pod.answered |= pod.ready

    def engines_start(self, revision: str) -> None:
        """P and D of a revision get ready."""
        if revision in self.engines:
            self.engines[revision] = dict.fromkeys(ENGINE_ROLES, True)

    def drained(self) -> None:
        """Router pods that were to stop have finished their requests."""
        self.pods = [pod for pod in self.pods if not pod.terminating]

    def router(self) -> WorkloadState | None:
        """The Deployment as the operator sees it: the latest spec, and a status that may be older."""
        if self.generation == 0:
            return None
        status = self._status or WorkloadState(name="x-router", role=Role.ROUTER, revision="", desired=0)
        return WorkloadState(
            name=status.name,
            role=status.role,
            revision=self.template,
            desired=self.desired,
            replicas=status.replicas,
            updated=status.updated,
            ready=status.ready,
            available=status.available,
            observed=self._seen_generation == self.generation,
        )

    def summaries(self) -> list[PodSummary]:
        """All pods as the operator sees them, those of P and D too."""
        routers = [
            PodSummary(
                name=f"router-{number}",
                role=Role.ROUTER,
                revision=pod.revision,
                phase="Failed" if pod.failed else "Running",
                ready=pod.ready and not pod.failed,
                terminating=pod.terminating,
            )
            for number, pod in enumerate(self.pods)
        ]
        engines = [
            PodSummary(name=f"{role}-{revision}", role=role, revision=revision, phase="Running", ready=ready)
            for revision, roles in self.engines.items()
            for role, ready in roles.items()
        ]
        return routers + engines
