"""A cluster in which pods come, end and are evicted at their own pace, and an operator that may die between two writes.

The operator sees its own writes at once (they go into its cache), pods later. What it sees of pods is refreshed at the
latest when a recommendation or the spec changes: these are seconds apart, a watch event takes milliseconds.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.planning.observed import PodSummary, WorkloadState
from pdinference.planning.scaling.allocation import Allocation, allocate
from pdinference.planning.scaling.fleet import ScaledFleet
from pdinference.planning.scaling.scale_spec import ScaleSpec

P, D = Role.PARAMETER, Role.DECODE
Place = tuple[Role, int, str]
"""Role, node rank, revision."""


@dataclass(eq=False)
class Pod:
    """A pod; `evicted` says that its workload may replace it while it still ends."""

    terminating: bool = False
    evicted: bool = False


@dataclass
class AllocationWorld:
    """Workloads, pods, scale targets and the operator.

    Attributes:
        spec: What the resource says now.
        nodes: Of a P instance; its GPUs are those of the spec over all of them.
        gpus: GPUs of an instance of each revision.
    """

    spec: ScaleSpec
    nodes: int = 1
    target: str = "r0"
    serving: str = ""
    asleep: bool = False
    recommended: dict[Role, int | None] = field(default_factory=lambda: dict.fromkeys(ENGINE_ROLES))
    desired: dict[Place, int] = field(default_factory=dict)
    pods: defaultdict[Place, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    seen: list[PodSummary] = field(default_factory=list)
    gpus: dict[str, dict[Role, int]] = field(default_factory=dict)

    def gpus_of(self, place: Place) -> int:
        """GPUs of one pod; an instance of several nodes has them on each."""
        role, _, name = place
        gpus = self.gpus.setdefault(name, {each: scale.gpus for each, scale in self.spec.roles.items()})
        return gpus[role] // (self.nodes if role is P else 1)

    def used(self) -> int:
        """GPUs of all pods that exist or are asked for; a pod that replaces an evicted one counts once."""
        places = {*self.desired, *self.pods}
        return sum(
            self.gpus_of(place)
            * (
                max(self.desired.get(place, 0), sum(not pod.terminating for pod in self.pods[place]))
                + sum(pod.terminating and not pod.evicted for pod in self.pods[place])
            )
            for place in places
        )

    def fleet(self) -> ScaledFleet:
        """What the operator sees: workloads as they are, pods as they were."""
        workloads = [
            WorkloadState("w", place[0], place[2], desired=count, node_rank=place[1], gpus=self.gpus_of(place))
            for place, count in self.desired.items()
        ]
        return ScaledFleet(workloads, self.seen)

    def look(self) -> None:
        """The operator sees all pods."""
        self.seen = [
            PodSummary(
                "p", place[0], place[2], terminating=pod.terminating, node_rank=place[1], gpus=self.gpus_of(place)
            )
            for place, pods in self.pods.items()
            for pod in pods
        ]

    def decide(self) -> Allocation:
        """What the operator would do now."""
        return allocate(
            self.spec, self.fleet(), self.recommended, target=self.target, serving=self.serving, asleep=self.asleep
        )

    def reconcile(self, writes: int = 1000) -> Allocation:
        """One reconcile of an operator that dies after this number of writes."""
        allocation = self.decide()
        for place, count in list(self._writes(allocation))[:writes]:
            self.desired[place] = count
        return allocation

    def _writes(self, allocation: Allocation) -> Iterator[tuple[Place, int]]:
        for role in ENGINE_ROLES:
            for name, count in allocation.replicas[role].items():
                for rank in range(self.nodes if role is P else 1):
                    place = (role, rank, name)
                    creates = name == self.target and not allocation.blocked
                    if (place in self.desired or creates) and self.desired.get(place) != count:
                        yield place, count

    def controllers(self, limit: int = 1000) -> None:
        """Each workload makes, or ends, up to this number of pods."""
        for place, pods in [*self.pods.items(), *((p, self.pods[p]) for p in self.desired if p not in self.pods)]:
            alive = [pod for pod in pods if not pod.terminating]
            lacking = self.desired.get(place, 0) - len(alive)
            # A StatefulSet makes a pod again when the one of its name is gone, a Deployment at once.
            held_up = sum(pod.evicted for pod in pods if pod.terminating) if place[0] is P else 0
            pods += [Pod() for _ in range(min(limit, lacking - held_up))]
            for pod in alive[: min(limit, max(0, -lacking))]:
                pod.terminating = True

    def end(self, number: int) -> None:
        """Pods that were to end have ended; at most this number of each workload."""
        for place, pods in self.pods.items():
            gone = [pod for pod in pods if pod.terminating][:number]
            self.pods[place] = [pod for pod in pods if pod not in gone]

    def evict(self, role: Role) -> None:
        """A pod of a role has to leave its node."""
        for place, pods in self.pods.items():
            if place[0] is role and (alive := [pod for pod in pods if not pod.terminating]):
                alive[0].terminating = alive[0].evicted = True
                return

    def recommend(self, role: Role, count: int) -> None:
        """A scaler changes its mind."""
        self.look()
        self.recommended[role] = count

    def edit(self, gpus: int) -> None:
        """Another template, maybe with other GPUs: a new revision."""
        self.look()
        name = f"r{len(self.gpus)}"
        wish = {role: gpus * (self.nodes if role is P else 1) for role in ENGINE_ROLES}
        fits = self.spec.budget is None or self.least(wish) <= self.spec.budget
        self.gpus[name] = wish if fits and gpus < 3 else dict(self.gpus[self.target])
        self._aim_at(name)

    def least(self, gpus: Mapping[Role, int]) -> int:
        """GPUs of the fewest pods within range and ratio."""
        p, d = (self.spec.roles[role].minimum for role in ENGINE_ROLES)
        p, d = self.spec.ratio.least(p, d) if self.spec.ratio is not None else (p, d)
        return p * gpus[P] + d * gpus[D]

    def undo(self) -> None:
        """Back to the template of the oldest revision that exists."""
        self.look()
        self._aim_at(min((name for *_, name in self.desired), default=self.target))

    def _aim_at(self, name: str) -> None:
        self.target, gpus = name, self.gpus[name]
        roles = {role: replace(scale, gpus=gpus[role]) for role, scale in self.spec.roles.items()}
        self.spec = replace(self.spec, roles=roles)

    def switch(self) -> bool:
        """Requests go to the target revision, if it has pods of both roles."""
        ready = all(self.desired.get((role, 0, self.target), 0) for role in ENGINE_ROLES)
        if ready:
            self.serving = self.target
        return ready

    def prune(self) -> None:
        """Revisions that serve no more, and never will, are deleted; with Recreate the serving one, too."""
        self.look()
        kept = {self.target} if self.spec.recreates else {self.target, self.serving}
        for place in [place for place in self.desired if place[2] not in kept]:
            del self.desired[place]

    def sleep(self, asleep: bool) -> None:
        """No request comes, or one does; a revision sleeps only when it serves."""
        if self.serving == self.target and asleep != self.asleep:
            self.look()
            self.asleep = asleep
            self.recommended = {role: scale.minimum for role, scale in self.spec.roles.items()}

    def budget(self, gpus: int) -> None:
        """The budget is changed, but not below what the minimums need."""
        self.look()
        least = self.least({role: scale.gpus for role, scale in self.spec.roles.items()})
        self.spec = replace(self.spec, budget=least + gpus)

    def settle(self) -> None:
        """Everything happens that is under way, until nothing more does."""
        for _ in range(50):
            before = dict(self.desired)
            self.controllers()
            self.end(1000)
            self.look()
            self.reconcile()
            if before == self.desired:
                return
        raise AssertionError(f"still moving: {self.desired}")
