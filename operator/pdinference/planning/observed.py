"""The observed state that planning uses: small immutable records that `cluster` extracts from objects.

Tests: tests/planning/scaling/test_condition.py, tests/planning/test_rollout.py, tests/planning/test_host_local.py
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from pdinference.api.names import Role

_KEDA_METRIC: Final = re.compile(r"s([0-9]{1,3})-", re.ASCII)


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """A Deployment or StatefulSet, reduced to the progress of its pods.

    `revision` is that of the pod template. For the router, whose name does not contain a revision, it is the revision
    to which new router pods send requests.
    """

    name: str
    role: Role
    revision: str
    desired: int
    replicas: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    observed: bool = False  # the status describes the latest spec (observedGeneration == generation)
    node_rank: int = 0  # of the pods' node within their instances; node 0 stands for the instance
    gpus: int = 0  # of one pod
    kind: str = "Deployment"
    failure: str = ""  # why its controller cannot create pods, for example an exceeded quota

    @property
    def complete(self) -> bool:
        """Whether every pod is of the latest template and available, and no older pod exists."""
        return self.observed and self.desired == self.replicas == self.updated == self.available


@dataclass(frozen=True, slots=True)
class JobState:
    """A Job, reduced to its progress and its mutable fields.

    Attributes:
        outcome: How it ended; None while it runs.
        reason, message: Those of the condition with which it ended.
        active: Pods that are pending or running.
        settings: The live values of the fields of its spec that can change.
        report: The report of a model Job's pod, as JSON; empty for other Jobs.
    """

    name: str
    outcome: Literal["Complete", "Failed"] | None = None
    reason: str = ""
    message: str = ""
    active: int = 0
    started: datetime | None = None
    ended: datetime | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    report: str = ""
    uid: str = ""

    @property
    def complete(self) -> bool:
        """Whether it succeeded."""
        return self.outcome == "Complete"


PREPARING_MODEL = "PreparingModel"
"""Reason of a pod that downloads or checks its model before vLLM starts."""


@dataclass(frozen=True, slots=True)
class MetricLoad:
    """One metric of an HPA, rounded so that small changes do not change the status.

    Attributes:
        metric: Name of the metric.
        tenths: MetricLoad per pod, in tenths of its target; None when the HPA has not read it.
        target_milli: Target per pod, in thousandths.
        averaged: Whether the target is per pod; otherwise it is for all pods together.
    """

    metric: str
    tenths: int | None
    target_milli: float
    averaged: bool = True


@dataclass(frozen=True, slots=True)
class ObservedCondition:
    """A condition of another controller's object, such as an HPA; the message only when it is False."""

    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class AutoscalerState:
    """A HorizontalPodAutoscaler, reduced to its state and conditions.

    Attributes:
        evaluated: Whether Kubernetes has evaluated it.
        desired: Desired replicas; None before the first evaluation.
        able: Condition AbleToScale; None before the first evaluation.
        active: Condition ScalingActive.
        limited: Condition ScalingLimited.
        loads: Its metrics; for a ScaledObject, with the names of its triggers, in their order.
    """

    minimum: int
    maximum: int
    evaluated: bool = False
    desired: int | None = None
    loads: tuple[MetricLoad, ...] = ()
    able: ObservedCondition | None = None
    active: ObservedCondition | None = None
    limited: ObservedCondition | None = None

    @property
    def load_known(self) -> bool:
        """Whether it can read its metrics."""
        return self.active is not None and self.active.status == "True"

    @property
    def limit(self) -> str:
        """The reason of ScalingLimited; empty without a limit, and for a limit by an earlier minimum or maximum."""
        if self.limited is None or self.limited.status != "True":
            return ""
        raised = self.limited.reason == "TooManyReplicas" and self.desired is not None and self.desired < self.maximum
        lowered = self.limited.reason == "TooFewReplicas" and self.desired is not None and self.desired > self.minimum
        return "" if raised or lowered else self.limited.reason

    def with_hpa(self, hpa: "AutoscalerState") -> "AutoscalerState":
        """A ScaledObject with the state of the HPA that KEDA created for it. KEDA's own errors take precedence."""
        return replace(
            hpa,
            minimum=self.minimum,
            maximum=self.maximum,
            loads=tuple(map(self._named, hpa.loads)),
            active=self.active if self.active is not None and self.active.status == "False" else hpa.active,
        )

    def _named(self, load: MetricLoad) -> MetricLoad:
        """A load of KEDA's HPA under the name of its trigger; KEDA calls the metric `s0-prometheus`."""
        number = _KEDA_METRIC.match(load.metric)
        known = number is not None and int(number[1]) < len(self.loads)
        return replace(load, metric=self.loads[int(number[1])].metric) if number is not None and known else load


@dataclass(frozen=True, slots=True)
class RouteParent:
    """A parent of an HTTPRoute, reduced to what its controller says about the latest spec of the route.

    Attributes:
        reference: Kind, namespace and name, as arguments of `kubectl get`.
        listener: Name of the listener; empty for all.
        accepted: Condition Accepted; None until the controller has written it.
        resolved: Condition ResolvedRefs.
    """

    reference: tuple[str, str, str]
    listener: str = ""
    accepted: ObservedCondition | None = None
    resolved: ObservedCondition | None = None


@dataclass(frozen=True, slots=True)
class PodProblem:
    """Why a pod is not ready, from the kubelet or the scheduler."""

    reason: str
    message: str = ""
    container: str = ""
    image: str = ""
    exit_code: int | None = None
    last_words: str = ""  # what its log says about the end
    restarts: int = 0  # of the container


@dataclass(frozen=True, slots=True)
class SharedEngine:
    """An engine of a pod that has several (the path HostLocal). Those in one container have one state.

    Attributes:
        name: Its name in the pod.
        port: Port of its API.
        ready: Whether its container is ready.
        started: Whether its container has started, even if it does not respond any more.
        restarts: Number of restarts of its container.
        problem: The problem of the pod, without those of other engines.
    """

    role: Role
    name: str
    port: int
    ready: bool
    started: bool = False
    restarts: int = 0
    problem: PodProblem | None = None


@dataclass(frozen=True, slots=True)
class PodSummary:
    """A pod, reduced to what status messages and the roll-out need.

    Attributes:
        role: Its role in a PDInference; None for the runner of a PDBatch.
        created: Its creation time, as sortable text; only for a runner, and for P and D.
        ready_since: When it became ready, as sortable text; only for P and D, empty while it is not.
        uid: Its uid; not for a router.
        job: Uid of its Job; only for a runner.
        scheduled: When it got its node, as sortable text; only for P and D.
        engine_started: When its engine's container started, the last one of several; only for P and D.
        started: When its last container started, as sortable text; only for P and D.
        gpus: GPUs of its vLLM container.
        report: Its termination message; only for a runner.
        has_model: Whether it found its model complete before vLLM started; only for P and D that check it.
        restarts: Number of restarts of its containers, without init containers.
        restarted: Whether any of its containers was restarted, init containers included.
        engines: Its engines, if it is made to have several.
        engine: Name of the only engine that this is about, in a pod with several.
        rank: The data-parallel rank that its problem is about, if it is about one.
    """

    name: str
    role: Role | None
    revision: str
    phase: str = "Pending"
    ready: bool = False
    terminating: bool = False
    restarts: int = 0
    node_rank: int = 0
    gpus: int = 0
    problem: PodProblem | None = None
    created: str = ""
    ready_since: str = ""
    report: str = ""
    has_model: bool = False
    restarted: bool = False
    engines: tuple[SharedEngine, ...] = ()
    engine: str = ""
    rank: int | None = None
    uid: str = ""
    job: str = ""
    scheduled: str = ""
    engine_started: str = ""
    started: str = ""

    @property
    def by_engine(self) -> tuple["PodSummary", ...]:
        """The pod, or of one with several engines each of them as a pod. Their GPUs are counted at the whole pod."""
        return tuple(map(self._of, self.engines)) or (self,)

    def _of(self, engine: SharedEngine) -> "PodSummary":
        return replace(
            self,
            role=engine.role,
            ready=engine.ready,
            restarts=engine.restarts,
            gpus=0,
            problem=engine.problem,
            engines=(),
            engine=engine.name,
        )

    @property
    def gone(self) -> bool:
        """Whether the pod has ended (phase Succeeded or Failed)."""
        return self.phase in {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A child that could not be applied or pruned.

    Attributes:
        reason: CamelCase, for the condition: `NameConflict`, `Forbidden`, `Invalid`, ...
        message: The API server's message.
        transient: Whether a retry may succeed without other changes.
        withheld: Children that depend on this one and were therefore not applied, by kind and name.
    """

    kind: str
    name: str
    reason: str
    message: str
    transient: bool = False
    withheld: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.withheld:
            return f"{self.kind} {self.name}: {self.message}"
        return f"{self.kind} {self.name}: {self.message} Until then {_and(self.withheld)} will not be applied."


def _and(names: Sequence[str]) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} and {last}" if others else last
